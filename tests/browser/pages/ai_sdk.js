// A page with `useChat`, which keeps its messages as docs says.

import { createElement, useEffect } from "react";
import { createRoot } from "react-dom/client";
import { useKeptChat } from "./documented_ai_sdk.js";
import { show } from "./shown.js";

const STATES = {
  "approval-requested": "asks",
  "input-available": "waits",
  "output-available": "done",
  "output-error": "failed",
  "output-denied": "failed",
};

function readCall(part, chat) {
  const { toolCallId, approval, output } = part;
  const name = part.toolName ?? part.type.slice("tool-".length);
  const respond = (approved, reason) => chat.addToolApprovalResponse({ id: approval.id, approved, reason });
  return {
    name,
    input: JSON.stringify(part.input ?? part.rawInput),
    state: STATES[part.state] ?? part.state,
    told: part.errorText ?? (part.state === "output-denied" ? `the call of tool '${name}' was denied: ${approval.reason}`
      : typeof output === "string" ? output : JSON.stringify(output)),
    approve: () => respond(true),
    deny: () => respond(false, "too much"),
    pick: () => chat.addToolOutput({ tool: name, toolCallId, output: "2027-03-01" }),
  };
}

const notices = (window.notices = []);
const options = { onData: ({ type }) => notices.push(type) };

function Page() {
  const chat = useKeptChat("c1", options);
  useEffect(() => {
    const said = (parts, type) => parts.map((part) => (part.type === type ? part.text : "")).join("");
    const messages = chat.messages.map(({ role, parts }) => ({
      role,
      thought: said(parts, "reasoning"),
      text: said(parts, "text"),
      calls: parts.filter((part) => "toolCallId" in part).map((part) => readCall(part, chat)),
    }));
    show(messages, chat.status, chat.error?.message, (text) => chat.sendMessage({ text }), chat.stop);
    window.send = () => chat.sendMessage(); // what stands there, without a question
  });
  return null;
}

createRoot(document.createElement("div")).render(createElement(Page));
