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

async function conversation() {
  return answered(await fetch("/conversation"));
}

// Gives each event of a run behind `after` to `take`, with the text that it came as; returns at the end of the body.
async function follow(run, after, take, signal) {
  const response = await fetch(`/runs/${encodeURIComponent(run)}/events?after=${after}`, { signal });
  if (!response.ok) await answered(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const lines = new Lines();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (const line of lines.feed(value)) {
      if (line.startsWith("data: ")) take(JSON.parse(line.slice(6)), line.slice(6));
    }
  }
}

class Lines {
  constructor() {
    this.pieces = [];
  }

  feed(text) {
    const lines = text.split("\n");
    const rest = lines.pop();
    if (lines.length) {
      lines[0] = this.pieces.join("") + lines[0];
      this.pieces = [];
    }
    this.pieces.push(rest);
    return lines;
  }
}
