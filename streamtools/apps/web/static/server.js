"use strict";
// Requests to the server: questions, decisions, and the events of a run.

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function readBody(response) {
  if (response.ok) return response.json();
  const isText = response.headers.get("content-type")?.startsWith("text/plain"); // a proxy may send HTML
  throw new Refusal(response.status, (isText && (await response.text())) || `the server says ${response.status}`);
}

async function postJson(path, value = {}) {
  const headers = { "content-type": "application/json" };
  return readBody(await fetch(path, { method: "POST", headers, body: JSON.stringify(value) }));
}

async function conversation() {
  return readBody(await fetch("/conversation"));
}

// Passes each event of a run after `after` to `take`, with its JSON. Returns at the end of the body.
async function follow(run, after, take, signal) {
  const response = await fetch(`/runs/${encodeURIComponent(run)}/events?after=${after}`, { signal });
  if (!response.ok) await readBody(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const frames = new FrameReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (const data of frames.feed(value)) take(readEvent(data), data);
  }
}
