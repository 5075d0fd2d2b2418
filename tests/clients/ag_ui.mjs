// node ag_ui.mjs URL: a front end with AG-UI, against a server of ours; it asks once, and once more where the run was
// interrupted, with the approval that it asked for.

import { HttpAgent } from "@ag-ui/client";
import { listeningFetch, nameOf, tell } from "./telling.mjs";

const [, , url] = process.argv;
const agent = new HttpAgent({
  url,
  threadId: "thread-1",
  fetch: listeningFetch,
  initialMessages: [{ id: "q-1", role: "user", content: "What is the weather?" }],
});
const events = [];
let failure;
let interrupts = [];
let pending;
const subscriber = {
  onEvent: ({ event }) => {
    events.push(event);
    tell("event", event.type);
  },
  onRunFailed: ({ error }) => {
    failure = nameOf(error);
  },
  onRunFinishedEvent: ({ event, pendingToolCallIds }) => {
    pending = pendingToolCallIds;
    interrupts = event.outcome?.interrupts ?? [];
  },
};
let answer = {};
try {
  answer = await agent.runAgent({ runId: "run-1" }, subscriber);
  if (interrupts.length) {
    const resume = interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved: true } }));
    answer = await agent.runAgent({ runId: "run-2", resume }, subscriber);
  }
} catch (error) {
  failure ??= nameOf(error);
}
tell("end", { messages: agent.messages, result: answer.result, events, failure, pending });
