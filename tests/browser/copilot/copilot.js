// A page of CopilotKit: its own chat, in front of a program that speaks AG-UI. It has one tool of its own, and asks its
// user about calls that wait.

import { HttpAgent } from "@ag-ui/client";
import { CopilotChat, CopilotKitProvider, useDefaultRenderTool, useHumanInTheLoop, useInterrupt } from "@copilotkit/react-core/v2";
import { createElement as h } from "react";
import { createRoot } from "react-dom/client";
import { z } from "zod";

const agents = { default: new HttpAgent({ url: "/agent", threadId: "c1" }) };
window.agent = agents.default;

function Chat() {
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
      h("div", { className: "own", "data-status": status }, `${args.title ?? ""} → ${result ?? ""}`,
        respond ? h("button", { onClick: () => respond("2027-03-01") }, "Pick") : null),
  });
  useDefaultRenderTool({
    render: ({ name, parameters, status, result }) =>
      h("div", { className: "call", "data-status": status }, h("code", null, `${name} ${JSON.stringify(parameters)} → ${result ?? ""}`)),
  });
  return h(CopilotChat, { agentId: "default", threadId: "c1" });
}

createRoot(document.getElementById("root")).render(
  h(CopilotKitProvider, { selfManagedAgents: agents, showDevConsole: false }, h(Chat)));
