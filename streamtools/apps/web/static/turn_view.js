"use strict";
// One question and its answer, drawn. What has come stands in the state that `reduce` makes of events, which is that of
// the client in TypeScript; here are the elements for it, and no event is read a second time.

const WAITS = ["start", "step-start", "step-end", "follow-up", "usage"]; // behind which nobody knows what comes

class Turn {
  constructor(question, run, decide) {
    this.run = run;
    this.question = question;
    this.state = emptyTurn;
    this.last = ""; // the kind of the last event
    this.asked = new Map(); // the events that asked for approval, as they came, by their calls
    this.lost = ""; // why nothing more comes, where the run has not said so itself
    this.begun = 0; // when it was asked, if this page saw it from there
    this.first = 0; // when its first text was there
    this.took = 0; // when it had ended
    this.decide = (call, decision) => decide(run, call, decision);
    this.views = []; // of the parts, in their order
    this.gap = null; // where it says that a part is missing
    this.isClosed = false; // its end is drawn
    this.left = new AbortController();
    this.body = element("div", { class: "answer", "aria-busy": "true" });
    this.wait = element("p", { class: "wait", "aria-hidden": "true" }, element("span"), element("span"), element("span"));
    this.body.append(this.wait);
    this.node = element("article", { class: "turn", "data-run": run },
      element("h2", { class: "unseen" }, "Question"), element("p", { class: "question" }, question),
      element("h2", { class: "unseen" }, "Answer"), this.body);
  }

  // The number of the last event.
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

  // What was said, and which calls were made, as Markdown.
  get markdown() {
    const written = ({ kind, text, call }) => (kind === "text" ? text : call ? `\n\n> ${call.name}(${brief(call.arguments, 300)})\n\n` : "");
    return this.state.parts.map(written).join("");
  }

  // How it ended.
  get said() {
    return this.lost || this.ending || "The answer is complete.";
  }

  get ending() {
    const { done, failure } = this.state;
    return done && ending(done, failure && failure.message + (failure.status ? ` (status ${failure.status})` : ""));
  }

  // True if the event is new.
  take(event, line) {
    const state = reduce(this.state, event);
    if (state === this.state || this.ended) return false;
    this.state = state;
    this.last = event.type;
    if (event.type === "text") this.first = this.first || performance.now();
    if (event.type === "approval-requested") this.asked.set(event.call.id, line);
    if (event.type === "done") this.took = performance.now();
    return true;
  }

  // Shows what has come; true if something is left for later.
  show(now) {
    const { parts, gap, thinking } = this.state;
    if (gap && !this.gap) {
      this.gap = element("p", { class: "note" }, "A part of this answer is kept no more: what follows is the rest of it.");
      this.put(this.gap);
    }
    const stay = this.views.findIndex((view, at) => !view.fits(parts[at]));
    if (stay >= 0) for (const view of this.views.splice(stay)) view.node.remove(); // of a step that counts no more
    let left = false;
    for (let at = 0; at < parts.length; at++) {
      const part = parts[at];
      const view = (this.views[at] ??= new ({ call: Card, file: FileLink }[part.kind] ?? Prose)(part, this));
      left = view.show(part, now, this.ended || at < parts.length - 1) || left;
      if (!view.node.parentNode && view.isSeen(part)) this.put(view.node);
    }
    this.node.classList.toggle("deciding", thinking === true && !this.ended);
    if (this.ended) this.close();
    else this.wait.hidden = !WAITS.includes(this.last || "start");
    return left;
  }

  put(node) {
    this.body.insertBefore(node, this.wait.parentNode && this.wait);
  }

  // Shows how it ended.
  close() {
    if (this.isClosed) return;
    this.isClosed = true;
    this.wait.remove();
    this.body.removeAttribute("aria-busy");
    const said = this.lost || this.ending;
    if (said) this.put(element("p", { class: `ending ${this.lost ? "failed" : this.state.state}` }, said));
    const { input, output } = this.state.usage ?? {};
    const tokens = [input != null ? `${input.toLocaleString("en")} tokens in` : "", output != null ? `${output.toLocaleString("en")} ${input != null ? "out" : "tokens out"}` : ""];
    const line = tokens.filter(Boolean).join(", ");
    if (line) this.put(element("p", { class: "meta" }, line));
    else if (!this.body.childElementCount) this.put(element("p", { class: "note" }, "The answer is empty."));
  }

  // How fast it was, where the page has seen it from its question on.
  pace() {
    if (!this.begun || !this.took) return "";
    const rate = this.state.usage?.output / ((this.took - this.first) / 1000);
    return [seconds((this.took - this.begun) / 1000), this.first ? `first text after ${seconds((this.first - this.begun) / 1000)}` : "",
      this.first && !this.calls.length && Number.isFinite(rate) ? `${rate.toFixed(rate < 10 ? 1 : 0)} tokens a second` : ""].filter(Boolean).join(" · ");
  }

  // Ends what is shown without the run's own word for it.
  lose(why) {
    this.lost = why;
    this.show(performance.now());
  }

  // Nobody looks at it any more.
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

// Text, or reasoning; what is white space alone is not seen.
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
