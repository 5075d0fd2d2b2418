// node ag_ui.mjs PACKAGE URL SAYS: a front end with AG-UI, against a server of ours. It asks, and again where the run was
// interrupted or has left it a call of its own tool: with the result, and with what it SAYS to be asked for approval:
// "approve", "deny" or "cancel", which is no answer.

import { listeningFetch, nameOf, tell } from "./telling.mjs";

const [, , name, url, says = "approve"] = process.argv;
const { HttpAgent } = await import(name);
const payloads = { approve: { approved: true }, deny: { approved: false, reason: "too much" } };
const tools = [
  {
    name: "pick_date",
    description: "Let the user pick a date.",
    parameters: { type: "object", properties: { title: { type: "string" } }, required: ["title"] },
  },
];
const agent = new HttpAgent({
  url,
  threadId: "thread-1",
  fetch: listeningFetch,
  initialMessages: [{ id: "q-1", role: "user", content: "What is the weather?" }],
});
const events = [];
const states = []; // as they were when the value had grown
let failure;
let pending;
const subscriber = {
  onEvent: ({ event }) => {
    events.push(event);
    tell("event", event.type);
  },
  onStateChanged: ({ state }) => {
    states.push(structuredClone(state));
  },
  onRunFailed: ({ error }) => {
    failure = nameOf(error);
  },
  onRunFinishedEvent: ({ pendingToolCallIds }) => {
    pending = pendingToolCallIds;
  },
};

// Carries out the calls of its own tool, and returns how many there were.
const carryOut = () => {
  const answered = new Set(agent.messages.map((message) => message.toolCallId));
  const calls = agent.messages.flatMap((message) => message.toolCalls ?? []);
  const own = calls.filter((call) => call.function.name === tools[0].name && !answered.has(call.id));
  for (const { id } of own) agent.addMessage({ id: `own-${id}`, role: "tool", toolCallId: id, content: "2027-03-01" });
  return own.length;
};
let answer = {};
try {
  for (let run = 1, goesOn = true, resume; goesOn; run++) {
    answer = await agent.runAgent({ runId: `run-${run}`, tools, resume }, subscriber);
    const status = says === "cancel" ? "cancelled" : "resolved";
    resume = agent.pendingInterrupts.map(({ id }) => ({ interruptId: id, status, payload: payloads[says] }));
    goesOn = carryOut() > 0 || resume.length > 0;
  }
} catch (error) {
  failure ??= nameOf(error);
}
tell("end", { messages: agent.messages, state: agent.state, states, result: answer.result, events, failure, pending });
