// node ai_sdk.mjs PACKAGE MODE URL: a front end with the AI SDK, against a server of ours.
//
// read    one question by `DefaultChatTransport`, its answer by `readUIMessageStream`
// chat    one question by the chat that `useChat` is made of
// approve the same; the calls that are left to the client are answered by it, those that wait for approval get it
// deny    the same, but what waits for approval gets none
// resume  the same, left as soon as there is text, and resumed: by this chat, by one that has just been loaded, and by
//         one that there is nothing for

import { listeningFetch, nameOf, tell } from "./telling.mjs";

const [, , name, mode, api] = process.argv;
const {
  AbstractChat,
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
  readUIMessageStream,
} = await import(name);

const own = { get_weather: "sunny", pick_date: "2027-03-01" }; // what is left to the client, and comes of it
const question = { id: "q-1", role: "user", parts: [{ type: "text", text: "What is the weather?" }] };
const transport = new DefaultChatTransport({ api, fetch: listeningFetch });

class State {
  status = "ready";
  error = undefined;
  constructor(messages, onMessage) {
    this.messages = messages;
    this.onMessage = onMessage;
  }
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
    this.onMessage(message);
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, message);
    this.onMessage(message);
  };
  snapshot = (thing) => structuredClone(thing);
}

class Chat extends AbstractChat {
  constructor({ messages = [], onMessage = () => {}, ...options }) {
    super({ ...options, transport, state: new State(messages, onMessage) });
  }
}

const tellParts = (message) => tell("parts", message.parts.map((part) => `${part.type} ${part.state ?? ""}`.trim()));

if (mode === "read") {
  const stream = await transport.sendMessages({
    chatId: "chat-1",
    messages: [question],
    trigger: "submit-message",
    messageId: undefined,
    abortSignal: undefined,
  });
  const errors = [];
  let message = null;
  for await (message of readUIMessageStream({ stream, onError: (error) => errors.push(nameOf(error)) })) {
    tellParts(message);
  }
  tell("end", { message, errors });
}

if (mode === "chat" || mode === "approve" || mode === "deny") {
  const finishes = [];
  const data = [];
  const decides = mode !== "chat";
  const chat = new Chat({
    id: "chat-1",
    onMessage: tellParts,
    onData: (part) => data.push(structuredClone(part)), // which the next one changes
    onFinish: ({ finishReason, isAbort, isError }) => finishes.push({ finishReason, isAbort, isError }),
    onToolCall: ({ toolCall: { toolName, toolCallId } }) => {
      if (decides && toolName in own) void chat.addToolOutput({ tool: toolName, toolCallId, output: own[toolName] });
    },
    sendAutomaticallyWhen: (said) =>
      decides &&
      (lastAssistantMessageIsCompleteWithToolCalls(said) ||
        lastAssistantMessageIsCompleteWithApprovalResponses?.(said)), // which version 5 has not
  });
  await chat.sendMessage({ text: "What is the weather?" });
  const asked = chat.messages.at(-1).parts.filter((part) => decides && part.state === "approval-requested");
  for (const { approval } of asked) {
    const approved = mode === "approve";
    await chat.addToolApprovalResponse({ id: approval.id, approved, reason: approved ? undefined : "too much" });
  }
  while (asked.length && finishes.length < 2) await new Promise(setImmediate);
  while (chat.status === "submitted" || chat.status === "streaming") await new Promise(setImmediate);
  const { messages, status } = chat;
  tell("end", { messages, status, error: nameOf(chat.error), finishes, data });
}

if (mode === "resume") {
  const left = new Promise((resolve) => {
    const chat = new Chat({
      id: "chat-1",
      onMessage: (message) => {
        const speaks = message.role === "assistant" && message.parts.some((part) => part.type === "text" && part.text);
        if (speaks) resolve(chat);
      },
    });
    void chat.sendMessage({ text: "What is the weather?" });
  });
  const chat = await left;
  await chat.stop();
  const before = structuredClone(chat.messages);
  tell("left");
  await chat.resumeStream();
  const loaded = new Chat({ id: "chat-1", messages: [question] });
  await loaded.resumeStream();
  const other = new Chat({ id: "chat-2", messages: [question] });
  await other.resumeStream();
  const seen = (each) => ({ messages: each.messages, status: each.status, error: nameOf(each.error) });
  tell("end", { before, resumed: seen(chat), loaded: seen(loaded), other: seen(other) });
}
