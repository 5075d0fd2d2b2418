"use strict";
// The server: questions, decisions, and the events of a run from wherever we are.

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function answered(response) {
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Refusal(response.status, body.error || `the server says ${response.status}`);
  return body;
}

async function tell(path, value = {}) {
  const headers = { "content-type": "application/json" };
  return answered(await fetch(path, { method: "POST", headers, body: JSON.stringify(value) }));
}

// Returns what the server knows of a conversation: without one, of that which was used last.
async function conversation(id) {
  return answered(await fetch(id === null ? "/conversation" : `/conversation?of=${encodeURIComponent(id)}`));
}

// Gives each event of a run behind `after` to `take`, with the text that it came as; returns at the end of the body.
async function follow(run, after, take, signal) {
  const response = await fetch(`/runs/${encodeURIComponent(run)}/events?after=${after}`, { signal });
  if (!response.ok) await answered(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const frames = new FrameReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (const data of frames.feed(value)) take(readEvent(data), data);
  }
}
