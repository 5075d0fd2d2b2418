// node ag_ui.mjs URL: a front end with AG-UI, against a server of ours; it asks once.

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
let pending;
const subscriber = {
  onEvent: ({ event }) => {
    events.push(event);
    tell("event", event.type);
  },
  onRunFailed: ({ error }) => {
    failure = nameOf(error);
  },
  onRunFinishedEvent: ({ pendingToolCallIds }) => {
    pending = pendingToolCallIds;
  },
};
let answer = {};
try {
  answer = await agent.runAgent({ runId: "run-1" }, subscriber);
} catch (error) {
  failure ??= nameOf(error);
}
tell("end", { messages: agent.messages, result: answer.result, events, failure, pending });
