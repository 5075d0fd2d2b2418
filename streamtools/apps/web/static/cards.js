"use strict";
// Shows a call as a card: its state, and controls for the user's decision or result.

const STATES = {
  writing: "being written",
  ready: "complete",
  asking: "waits for you",
  lacking: "waits for your result",
  executing: "executing",
  executed: "executed",
  failed: "failed",
  denied: "denied",
  pending: "not run here",
  left: "not run",
};

const OPEN = ["writing", "ready", "asking", "executing"];

const clientTools = new Set(); // tools whose results the user enters

class Card {
  constructor(part, turn) {
    this.turn = turn;
    this.part = null; // the drawn state
    this.asks = ""; // the state in which the card asks the user: "asking", "lacking" or ""
    this.unfolds = new Set(); // the titles of the collapsible sections
    this.name = element("span", { class: "name" });
    this.state = element("span", { class: "state" });
    this.brief = element("p", { class: "brief" });
    this.said = element("p", { class: "said" });
    this.bar = element("progress", { hidden: true, "aria-label": "Progress" });
    this.actions = element("div", { class: "actions" });
    this.folded = element("div", { class: "folded" });
    this.node = element("section", { class: "card" },
      element("div", { class: "head" }, element("span", { class: "mark", "aria-hidden": "true" }), this.name, this.state),
      this.brief, this.said, this.bar, this.actions, this.folded);
  }

  fits(part) {
    return part?.kind === "call" && part.id === this.part.id;
  }

  isSeen() {
    return true;
  }

  show(part) {
    const state = this.stateOf(part);
    if (part === this.part && state === this.node.dataset.state) return false;
    this.part = part;
    const { name, call, code, raw, message } = part;
    const asks = ["asking", "lacking"].includes(state) ? state : "";
    const words = state === "executed" ? `executed · ${seconds(Number(part.elapsed))}` : STATES[state];
    this.name.textContent = name ?? "a call";
    this.state.textContent = words;
    this.node.dataset.state = state;
    this.node.setAttribute("aria-label", `Call of ${this.name.textContent}: ${words}`);
    this.brief.textContent = asks ? "" : call ? brief(call.arguments) : crop(part.written, 200);
    if (!asks) this.said.textContent = state === "executed" ? message ?? crop(oneLine(part.result), CROP) : code ? sentence(message) : "";
    this.bar.hidden = true;
    if (state === "executing" && part.progress !== undefined) this.progress(part.progress);
    if (call && brief(call.arguments, Infinity).length > CROP) this.unfold("Arguments", () => pretty(call.arguments));
    if (state === "executed" && (message != null || oneLine(part.result).length > CROP)) this.unfold("Result", () => pretty(part.result));
    if (code && !this.unfolds.has(code)) this.folded.append(element("span", { class: "code" }, code));
    if (raw) this.unfold("As the model wrote it", () => raw);
    this.unfolds.add(code);
    if (asks !== this.asks) {
      this.asks = asks;
      this.actions.replaceChildren();
      if (asks === "asking") this.ask(part);
      if (asks === "lacking") this.askForResult(part);
    }
    return false;
  }

  // Returns the state to show. It depends on the call, on whether the answer has ended, and on who runs the call.
  stateOf({ state, name, code }) {
    if ((this.turn.ended && OPEN.includes(state)) || (state === "failed" && !code)) return "left";
    return state === "executing" && clientTools.has(name) ? "lacking" : state;
  }

  unfold(summary, text) {
    if (this.unfolds.has(summary)) return;
    this.unfolds.add(summary);
    this.folded.append(collapsible(summary, text));
  }

  // Shows `{"percent": …}` or `{"done": …, "total": …}` as a bar, and a `message` beside it. Other data is shown as it is.
  progress(data) {
    const { percent, done, total, message } = data !== null && typeof data === "object" ? data : { message: oneLine(data) };
    const [value, max] = Number.isFinite(percent) ? [percent, 100] : [done, total];
    const known = Number.isFinite(value) && Number.isFinite(max) && max > 0;
    this.bar.hidden = false;
    if (known) [this.bar.max, this.bar.value] = [max, value];
    const amount = !known ? "" : max === 100 ? `${Math.round(value)} %` : `${value.toLocaleString("en")} of ${max.toLocaleString("en")}`;
    this.said.textContent = crop([amount, message].filter((each) => typeof each === "string" && each).join(" · ") || oneLine(data), 200);
  }

  ask({ id, call, expires, digest }) {
    const until = expires ? new Date(expires * 1000) : null;
    const time = until?.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    this.said.textContent = `This call needs your approval${time ? ` before ${time}` : ""}.`;
    const shown = element("pre", { class: "asked", tabindex: "0", "aria-label": "Arguments" }, pretty(call.arguments));
    const reason = element("input", { type: "text", placeholder: "Reason for the model (optional)",
      "aria-label": "Reason for denying", maxlength: "500" });
    const answer = (approve) =>
      this.answer(id, approve ? { decision: "approve", digest } : { decision: "deny", reason: reason.value });
    reason.addEventListener("keydown", (key) => { if (key.key === "Enter" && !key.isComposing) answer(false); });
    this.actions.replaceChildren(shown,
      button("Approve", () => answer(true), { class: "primary" }), button("Deny", () => answer(false)), reason);
  }

  // Asks for the result of a client tool. A result that is not JSON is sent as text.
  askForResult({ id, call }) {
    this.said.textContent = "Run this tool yourself and enter its result.";
    const shown = element("pre", { class: "asked", tabindex: "0", "aria-label": "Arguments" }, pretty(call.arguments));
    const result = element("textarea", { rows: "2", placeholder: "The result: text, or JSON", "aria-label": "Result of the call" });
    const given = () => {
      try {
        return JSON.parse(result.value);
      } catch (error) {
        return result.value;
      }
    };
    this.actions.replaceChildren(shown, result,
      button("Send result", () => this.answer(id, { decision: "answer", result: given() }), { class: "primary" }),
      button("Report a failure", () => this.answer(id, { decision: "answer", error: result.value || "it failed" })));
  }

  async answer(call, decision) {
    const controls = [...this.actions.querySelectorAll("button, input, textarea")];
    for (const each of controls) each.disabled = true;
    const fault = await this.turn.decide(call, decision);
    if (!fault) return;
    for (const each of controls) each.disabled = false;
    this.said.textContent = sentence(fault);
  }
}
