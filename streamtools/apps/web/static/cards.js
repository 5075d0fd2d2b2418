"use strict";
// A call as a card: its state, and the answers that the user can give.

const STATES = {
  writing: "being written",
  ready: "complete",
  asking: "waits for you",
  lacking: "waits for your result",
  executing: "executing",
  executed: "executed",
  failed: "failed",
  denied: "denied",
  pending: "left for another process to run",
  left: "not run",
};

const OPEN = ["writing", "ready", "asking", "executing"];

const clientTools = new Set(); // tools whose results the user enters

class Card {
  constructor(part, turn) {
    this.turn = turn;
    this.part = null; // the drawn state
    this.asks = ""; // what the card asks for
    this.unfolds = new Set(); // what can be unfolded
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
    const words = state === "executed" ? `executed · ${seconds(Number(part.elapsed))}` : (code && (UNSUCCESSFUL[code] ?? "Failed")) || STATES[state];
    this.name.textContent = name ?? "a call";
    this.state.textContent = words;
    this.node.dataset.state = state;
    this.node.setAttribute("aria-label", `Call of ${this.name.textContent}: ${words}`);
    this.brief.textContent = asks ? "" : call ? brief(call.arguments) : crop(part.written, 200);
    if (!asks) this.said.textContent = state === "executed" ? message ?? "" : code ? sentence(message) : "";
    this.bar.hidden = true;
    if (state === "executing" && part.progress !== undefined) this.progress(part.progress);
    if (call) this.unfold("Arguments", () => pretty(call.arguments));
    if (state === "executed") this.unfold("Result", () => pretty(part.result));
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

  // The shown state, from the call, the answer, and who runs the call.
  stateOf({ state, name, code }) {
    if ((this.turn.ended && OPEN.includes(state)) || (state === "failed" && !code)) return "left";
    return state === "executing" && clientTools.has(name) ? "lacking" : state;
  }

  unfold(summary, text) {
    if (this.unfolds.has(summary)) return;
    this.unfolds.add(summary);
    this.folded.append(collapsible(summary, text));
  }

  progress(data) {
    const known = data !== null && typeof data === "object";
    const [done, of] = known ? [data.done ?? data.current, data.of ?? data.total] : [];
    this.bar.hidden = false;
    if (Number.isFinite(done) && Number.isFinite(of) && of > 0) {
      this.bar.max = of;
      this.bar.value = done;
    }
    const shown = known ? data.message ?? data.step : data;
    this.said.textContent = crop(typeof shown === "string" ? shown : JSON.stringify(shown ?? data), 200);
  }

  ask({ id, call, expires }) {
    const until = expires ? new Date(expires * 1000) : null;
    const time = until?.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    this.said.textContent = `May it run?${time ? ` Without an answer by ${time} it will not.` : ""}`;
    const shown = element("pre", { class: "asked", tabindex: "0", "aria-label": "Arguments" }, pretty(call.arguments));
    const reason = element("input", { type: "text", placeholder: "Why not? (optional, for the model)",
      "aria-label": "Reason for denying", maxlength: "500" });
    const answer = (approve) =>
      this.answer(id, approve ? { approve, shown: this.turn.asked.get(id) } : { approve, reason: reason.value });
    reason.addEventListener("keydown", (key) => { if (key.key === "Enter" && !key.isComposing) answer(false); });
    this.actions.replaceChildren(shown,
      button("Approve", () => answer(true), { class: "primary" }), button("Deny", () => answer(false)), reason);
  }

  // Asks for the result of a client tool: JSON, or else text.
  askForResult({ id, call }) {
    this.said.textContent = "You run this tool. What is its result?";
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
      button("Send result", () => this.answer(id, { result: given() }), { class: "primary" }),
      button("It failed", () => this.answer(id, { error: result.value || "it failed" })));
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
