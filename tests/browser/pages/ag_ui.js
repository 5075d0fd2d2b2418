// A page with AG-UI's `HttpAgent`, which keeps its messages as docs says.

import { decide, KeptAgent } from "./documented_ag_ui.js";
import { show } from "./shown.js";

const tools = [
  {
    name: "pick_date",
    description: "Let the user pick a date.",
    parameters: { type: "object", properties: { title: { type: "string" } }, required: ["title"] },
  },
];
const agent = new KeptAgent("c1");
let status = "ready";
let fault = "";

function readCall({ id, function: { name, arguments: input } }, results) {
  const asks = agent.pendingInterrupts.some(({ toolCallId }) => toolCallId === id);
  const told = results[id];
  return {
    name,
    input,
    state: asks ? "asks" : told === undefined ? "waits" : "done",
    told,
    approve: () => go(decide(agent, true)),
    deny: () => go(decide(agent, false, "too much")),
    pick: () => say({ role: "tool", toolCallId: id, content: "2027-03-01" }),
  };
}

function refresh() {
  const results = {};
  for (const { role, toolCallId, content } of agent.messages) if (role === "tool") results[toolCallId] = content;
  const shown = agent.messages.filter(({ role }) => role !== "tool");
  const read = ({ role, content, toolCalls = [] }) => ({
    role,
    text: content ?? "",
    calls: toolCalls.map((call) => readCall(call, results)),
  });
  show(shown.map(read), status, fault, (content) => say({ role: "user", content }), () => agent.abortRun());
}

async function until(running) {
  status = "streaming";
  fault = "";
  refresh();
  try {
    await running;
  } catch (error) {
    fault = error.message;
  }
  status = fault ? "error" : "ready";
  refresh();
}

const go = (resume) => until(agent.runAgent({ tools, resume }));

function say(message) {
  agent.addMessage({ id: crypto.randomUUID(), ...message });
  return go();
}

const notices = (window.notices = []);
agent.subscribe({
  onMessagesChanged: refresh,
  onCustomEvent: ({ event }) => { notices.push(event.name); },
  onRunErrorEvent: ({ event }) => { fault = event.code === "abort" ? "" : event.message; },
});
Object.assign(window, { agent, refresh, send: go });
until(agent.connectAgent());
