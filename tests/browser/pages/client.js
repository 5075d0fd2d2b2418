// A page with `@streamtools/client`, which keeps what was said, and which run is being read.

import { Client, emptyTurn } from "@streamtools/client";
import { show } from "./shown.js";

const STATES = { asking: "asks", executing: "waits", executed: "done", denied: "failed" };
const turns = JSON.parse(localStorage.c1 ?? "[]"); // each with its question; the last may still be answered
let status = "ready";
let fault = "";
let picked;
let answer;

const client = new Client("/chat", { tools: { pick_date: () => new Promise((resolve) => (picked = resolve)) } });
const said = ({ parts }, kind) => parts.map((part) => (part.kind === kind ? part.text : "")).join("");

function readCall({ name, call, digest, written, state, result, message }) {
  const told = state !== "executed" ? message : typeof result === "string" ? result : JSON.stringify(result);
  const [approve, deny] = [() => answer.approve({ call, digest }), () => answer.deny({ call }, "too much")];
  const input = call ? JSON.stringify(call.arguments) : written;
  return { name, input, state: STATES[state] ?? state, told, approve, deny, pick: () => picked("2027-03-01") };
}

function refresh() {
  localStorage.c1 = JSON.stringify(turns);
  const messages = turns.flatMap(({ question, turn }) => [
    { role: "user", text: question, calls: [] },
    {
      ...{ role: "assistant", thought: said(turn, "reasoning"), text: said(turn, "text") },
      calls: turn.parts.filter(({ kind }) => kind === "call").map(readCall),
    },
  ]);
  show(messages, status, fault, ask, () => answer.stop());
}

function ask(question) {
  const before = turns.flatMap(({ question: content, turn }) => [
    { role: "user", content },
    { role: "assistant", content: said(turn, "text") },
  ]);
  turns.push({ question, turn: emptyTurn });
  return read(client.ask({ messages: [...before, { role: "user", content: question }] }));
}

async function read(asked) {
  answer = asked;
  const last = turns.at(-1);
  status = "answering";
  for await (const event of answer) {
    last.turn = answer.turn;
    if (event.type !== "raw") refresh();
  }
  status = last.turn.failure ? "error" : "ready";
  fault = last.turn.failure?.message ?? "";
  refresh();
}

const left = turns.at(-1)?.turn;
if (left?.run && !left.done) read(client.resume(left.run));
else refresh();
