// A page of CopilotKit: its own chat, in front of a program that speaks AG-UI. It has one tool of its own, and asks its
// user about calls that wait.

import { CopilotChat, CopilotKitProvider, useDefaultRenderTool, useHumanInTheLoop, useInterrupt } from "@copilotkit/react-core/v2";
import { createElement as h, useState } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";
import { KeptAgent } from "./documented_ag_ui.js";

const agents = { default: new KeptAgent("c1") };
let status = "ready";
const tell = (now) => { document.body.dataset.status = status = now; };
agents.default.subscribe({
  onRunInitialized: () => tell("streaming"),
  onRunErrorEvent: ({ event }) => tell(event.code === "abort" ? "ready" : "error"),
  onRunFinalized: () => tell(status === "error" ? status : "ready"),
});
window.agent = agents.default;
tell("ready");

function Chat() {
  const [fault, setFault] = useState("");
  useInterrupt({
    render: ({ interrupt, resolve }) =>
      h("div", { className: "asks" },
        h("code", null, JSON.stringify(interrupt)),
        h("button", { onClick: () => resolve({ approved: true }) }, "Approve"),
        h("button", { onClick: () => resolve({ approved: false, reason: "too much" }) }, "Deny")),
  });
  useHumanInTheLoop({
    name: "pick_date",
    description: "Let the user pick a date.",
    parameters: z.object({ title: z.string() }),
    render: ({ status, args, respond, result }) =>
      h("div", { className: "call", "data-state": status }, h("code", null, `pick_date ${JSON.stringify(args)} → ${result ?? ""}`),
        respond ? h("button", { onClick: () => respond("2027-03-01") }, "Pick") : null),
  });
  useDefaultRenderTool({
    render: ({ name, parameters, status, result }) =>
      h("div", { className: "call", "data-state": status }, h("code", null, `${name} ${JSON.stringify(parameters)} → ${result ?? ""}`)),
  });
  return [h(CopilotChat, { agentId: "default", threadId: "c1", onError: ({ error }) => setFault(error.message) }), h("p", { role: "alert" }, fault)];
}

createRoot(document.getElementById("root")).render(
  h(CopilotKitProvider, { selfManagedAgents: agents, showDevConsole: false }, h(Chat)));
