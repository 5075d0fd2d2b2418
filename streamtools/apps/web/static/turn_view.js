"use strict";
// One question and its answer. `reduce` of the TypeScript client computes the state from the events. This script draws the
// state.

const WAITS = ["start", "step-start", "step-end", "follow-up", "usage"]; // the waiting animation is shown after these events

class Turn {
  constructor(question, run, decide) {
    this.run = run;
    this.question = question;
    this.state = emptyTurn;
    this.last = ""; // the type of the last event
    this.lost = ""; // why no more events arrive, if no event gives the reason
    this.recorded = false; // whether the debugger can show the answer
    this.begun = 0; // when the question was sent, if this page sent it
    this.first = 0; // when the first text arrived
    this.took = 0; // when the answer ended, or 0
    this.decide = (call, decision) => decide(run, call, decision);
    this.views = []; // the views of the parts, in order
    this.gap = null; // the note that a part is missing
    this.reconnecting = element("p", { class: "note", role: "status" }, "Reconnecting…");
    this.isClosed = false; // whether the end of the answer is drawn
    this.left = new AbortController();
    this.body = element("div", { class: "answer", "aria-busy": "true" });
    this.wait = element("p", { class: "wait", "aria-hidden": "true" }, element("span"), element("span"), element("span"));
    this.body.append(this.wait);
    this.node = element("article", { class: "turn", "data-run": run },
      element("h2", { class: "unseen" }, "Question"), element("p", { class: "question" }, question),
      element("h2", { class: "unseen" }, "Answer"), this.body);
  }

  // The `seq` of the last event.
  get seen() {
    return this.state.seq;
  }

  get ended() {
    return Boolean(this.state.done || this.lost);
  }

  get failed() {
    return ["failed", "truncated"].includes(this.state.state);
  }

  get calls() {
    return this.state.parts.filter((part) => part.kind === "call");
  }

  // The text and the calls of the answer, as Markdown.
  get markdown() {
    const written = ({ kind, text, call }) => (kind === "text" ? text : call ? `\n\n> ${call.name}(${brief(call.arguments, 300)})\n\n` : "");
    return this.state.parts.map(written).join("");
  }

  // A sentence about the end of the answer.
  get said() {
    return this.lost || this.ending || "The answer is complete.";
  }

  get ending() {
    const { done, failure } = this.state;
    return done && ending(done, failure && failure.message + (failure.status ? ` (status ${failure.status})` : ""));
  }

  // Applies an event. Returns false if it is not new.
  take(event) {
    const state = reduce(this.state, event);
    if (state === this.state || this.ended) return false;
    this.state = state;
    this.last = event.type;
    if (event.type === "text") this.first = this.first || performance.now();
    if (event.type === "done") this.took = performance.now();
    return true;
  }

  // Draws the state. Returns true if a later frame must draw the rest.
  show(now) {
    const { parts, gap, thinking } = this.state;
    if (gap && !this.gap) {
      this.gap = element("p", { class: "note" }, "The server no longer has a part of this answer. The rest follows.");
      this.put(this.gap);
    }
    const stay = this.views.findIndex((view, at) => !view.fits(parts[at]));
    if (stay >= 0) for (const view of this.views.splice(stay)) view.node.remove(); // the step was superseded
    let left = false;
    for (let at = 0; at < parts.length; at++) {
      const part = parts[at];
      const view = (this.views[at] ??= new ({ call: Card, file: FileLink }[part.kind] ?? Prose)(part, this));
      left = view.show(part, now, this.ended || at < parts.length - 1) || left;
      if (!view.node.parentNode && view.isSeen(part)) this.put(view.node);
    }
    this.node.classList.toggle("deciding", thinking === true && !this.ended);
    if (!this.state.reconnecting || this.ended) this.reconnecting.remove();
    else if (!this.reconnecting.parentNode) this.put(this.reconnecting);
    if (this.ended) this.close();
    else this.wait.hidden = !WAITS.includes(this.last || "start");
    return left;
  }

  put(node) {
    this.body.insertBefore(node, this.wait.parentNode && this.wait);
  }

  // Draws the ending.
  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.wait.remove();
    this.body.removeAttribute("aria-busy");
    const said = this.lost || this.ending;
    if (said) this.put(element("p", { class: `ending ${this.lost ? "failed" : this.state.state}` }, said));
    if (!this.body.childElementCount) this.put(element("p", { class: "note" }, "The answer is empty."));
  }

  // The numbers of tokens. If this page sent the question, also the duration and the speed.
  figures() {
    const { input, output } = this.state.usage ?? {};
    const said = [input != null ? `${countOf(input, "token", "tokens")} in` : "", output != null ? `${countOf(output, "token", "tokens")} out` : ""];
    if (this.begun && this.took) {
      const rate = output / ((this.took - this.first) / 1000);
      said.push(seconds((this.took - this.begun) / 1000), this.first ? `first text after ${seconds((this.first - this.begun) / 1000)}` : "",
        this.first && !this.calls.length && Number.isFinite(rate) ? `${rate.toFixed(rate < 10 ? 1 : 0)} tokens a second` : "");
    }
    return said.filter(Boolean).join(" · ");
  }

  // Ends the answer without an event of the run.
  lose(why) {
    this.lost = why;
    this.show(performance.now());
  }

  // Stops reading.
  leave() {
    this.lost = this.lost || "left";
    this.left.abort();
  }
}

// A file or image that the provider sent beside the text: a link if it has an address, else a note.
class FileLink {
  constructor({ url }) {
    this.url = url;
    const shown = url.startsWith("https:") ? element("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, crop(url, 80))
      : "The model has sent a file. This page shows no files.";
    this.node = element("div", { class: "prose" }, shown);
  }

  fits(part) {
    return part?.url === this.url;
  }

  isSeen() {
    return true;
  }

  show() {
    return false;
  }
}

// Text or reasoning. White space alone is not shown.
class Prose {
  constructor({ kind, step }) {
    this.kind = kind;
    this.step = step;
    this.text = new MarkdownText();
    this.taken = 0; // characters
    this.isFinal = false;
    this.node = kind === "reasoning" ? element("details", { class: "reasoning" }, element("summary", {}, "Reasoning"), this.text.node) : this.text.node;
  }

  fits(part) {
    return part?.kind === this.kind && part.step === this.step;
  }

  isSeen(part) {
    return part.text.trim() !== "";
  }

  show(part, now, final) {
    if (this.isFinal) return false;
    for (; this.taken < part.text.length; this.taken += BLOCK) this.text.append(part.text.slice(this.taken, this.taken + BLOCK));
    this.taken = part.text.length;
    this.isFinal = final;
    return this.text.show(now, final);
  }
}
