"use strict";
// One question and its answer: parts in the order in which they came, made of events and of nothing else.

class Turn {
  constructor(question, run, decide) {
    this.run = run;
    this.question = question;
    this.written = [];
    this.begun = 0; // when it was asked, if this page saw it from there
    this.first = 0; // when its first text was there
    this.failed = false;
    this.decide = (call, decision) => decide(run, call, decision);
    this.seen = 0; // the number of the last event
    this.ended = false;
    this.parts = [];
    this.white = "";
    this.cards = new Map();
    this.failure = "";
    this.usage = {};
    this.left = new AbortController();
    this.body = element("div", { class: "answer", "aria-busy": "true" });
    this.wait = element("p", { class: "wait", "aria-hidden": "true" }, element("span"), element("span"), element("span"));
    this.body.append(this.wait);
    this.node = element("article", { class: "turn", "data-run": run },
      element("h2", { class: "unseen" }, "Question"), element("p", { class: "question" }, question),
      element("h2", { class: "unseen" }, "Answer"), this.body);
  }

  // What was said, and which calls were made, as Markdown.
  get markdown() {
    return this.written.join("");
  }

  take(event, line) {
    if (event.seq <= this.seen || this.ended) return false;
    this.seen = event.seq;
    switch (event.type) {
      case "step-start": this.settle(); break;
      case "text":
        this.first = this.first || performance.now();
        this.written.push(event.text);
        this.add(event.type, event.text);
        break;
      case "reasoning": this.add(event.type, event.text); break;
      case "thinking": this.think(event); break;
      case "call-start": case "call-delta": case "progress":
        this.card(event.call_id).take(event, line); break;
      case "call": case "approval-requested": case "executing": case "executed":
        if (event.type === "call") this.written.push(`\n\n> ${event.call.name}(${brief(event.call.arguments, 300)})\n\n`);
        this.card(event.call.id).take(event, line); break;
      case "error":
        if (event.call_id) this.card(event.call_id).take(event, line);
        else this.failure = event.message + (event.status ? ` (status ${event.status})` : "");
        break;
      case "warning":
        if (event.code === "resync") this.note("A part of this answer is kept no more: what follows is the rest of it.");
        break;
      case "usage": this.count(event.usage); break;
      case "done": this.end(event); break;
    }
    this.wait.hidden = !["start", "step-start", "step-end", "follow-up", "usage"].includes(event.type);
    if (!this.wait.hidden) this.body.append(this.wait);
    return true;
  }

  // Shows what has come; true if something is left for later.
  show(now) {
    let left = false;
    for (const part of this.parts) left = part.show(now, this.ended) || left;
    if (this.ended && !left) this.parts = [];
    return left;
  }

  // Adds text; white space alone begins no part, and waits for what can be seen.
  add(kind, text) {
    const last = this.body.lastElementChild === this.wait ? this.wait.previousElementSibling : this.body.lastElementChild;
    const current = this.parts.at(-1);
    const goesOn = current?.kind === kind && current.outer === last;
    text = this.white + text;
    this.white = goesOn || text.trim() ? "" : text;
    if (!this.white && text) (goesOn ? current : this.begin(kind)).append(text);
  }

  begin(kind) {
    const part = new MarkdownText();
    part.kind = kind;
    part.outer = part.node;
    if (kind === "reasoning") {
      part.outer = element("details", { class: "reasoning" }, element("summary", {}, "Reasoning"), part.node);
    }
    this.put(part.outer);
    this.settle();
    this.parts = [part];
    return part;
  }

  // What is said from now on is a part of its own.
  settle() {
    this.parts.at(-1)?.show(0, true); // as it stays
    this.parts = [];
    this.white = "";
  }

  put(node) {
    this.body.insertBefore(node, this.wait.parentElement === this.body ? this.wait : null);
  }

  note(text) {
    this.put(element("p", { class: "note" }, text));
  }

  card(id) {
    if (!this.cards.has(id)) {
      const card = new Card(this.decide);
      this.cards.set(id, card);
      this.put(card.node);
    }
    return this.cards.get(id);
  }

  think(event) {
    if (event.active && event.call_id) this.card(event.call_id);
    this.node.classList.toggle("deciding", event.active && !event.call_id);
  }

  count(usage) {
    for (const name of ["input", "output"]) {
      if (usage[name] != null) this.usage[name] = (this.usage[name] ?? 0) + usage[name];
    }
  }

  end(done) {
    this.finish();
    const pending = new Set(done.pending.map((call) => call.id));
    for (const [id, card] of this.cards) card.end(pending.has(id));
    const said = ending(done, this.failure);
    if (said) this.put(element("p", { class: `ending ${done.reason}` }, said));
    const { input, output } = this.usage;
    const tokens = [input != null ? `${input.toLocaleString("en")} tokens in` : "", output != null ? `${output.toLocaleString("en")} ${input != null ? "out" : "tokens out"}` : ""];
    const line = tokens.filter(Boolean).join(", ");
    this.failed = done.reason === "failed" || done.reason === "truncated";
    this.took = performance.now();
    this.said = said || "The answer is complete.";
    if (line) this.put(element("p", { class: "meta" }, line));
    else if (!said && !this.body.childElementCount) this.note("The answer is empty.");
  }

  // How fast it was, where the page has seen it from its question on.
  pace() {
    if (!this.begun || !this.took) return "";
    const rate = this.usage.output / ((this.took - this.first) / 1000);
    return [seconds((this.took - this.begun) / 1000), this.first ? `first text after ${seconds((this.first - this.begun) / 1000)}` : "",
      this.first && !this.cards.size && Number.isFinite(rate) ? `${rate.toFixed(rate < 10 ? 1 : 0)} tokens a second` : ""].filter(Boolean).join(" · ");
  }

  // Ends what is shown without the run's own word for it.
  lose(why) {
    this.finish();
    for (const card of this.cards.values()) card.end(false);
    this.put(element("p", { class: "ending failed" }, why));
    this.said = why;
  }

  leave() {
    this.ended = true;
    this.left.abort();
  }

  finish() {
    this.ended = true;
    this.wait.remove();
    this.body.removeAttribute("aria-busy");
    this.node.classList.remove("deciding");
  }
}
