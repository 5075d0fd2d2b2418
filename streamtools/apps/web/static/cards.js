"use strict";
// A call as a card: waiting, complete, asking, executing, executed or failed. What it says is what the events said.

const STATES = {
  waiting: "being written",
  ready: "complete",
  asking: "waits for you",
  executing: "executing",
  executed: "executed",
  failed: "failed",
  denied: "denied",
  pending: "not run",
};

const clientTools = new Set(); // whose calls the user carries out

class Card {
  constructor(decide) {
    this.decide = decide;
    this.written = "";
    this.call = null;
    this.name = element("span", { class: "name" }, "a call");
    this.state = element("span", { class: "state" });
    this.brief = element("p", { class: "brief" });
    this.said = element("p", { class: "said" });
    this.bar = element("progress", { hidden: true, "aria-label": "Progress" });
    this.actions = element("div", { class: "actions" });
    this.folded = element("div", { class: "folded" });
    this.node = element("section", { class: "card" },
      element("div", { class: "head" }, element("span", { class: "mark", "aria-hidden": "true" }), this.name, this.state),
      this.brief, this.said, this.bar, this.actions, this.folded);
    this.turn("waiting");
  }

  turn(state, words = STATES[state]) {
    this.node.dataset.state = state;
    this.state.textContent = words;
    this.node.setAttribute("aria-label", `Call of ${this.name.textContent}: ${words}`);
    this.brief.textContent = state !== "asking" && this.call ? this.arguments : this.brief.textContent;
    if (state !== "asking") this.actions.replaceChildren();
    if (state !== "executing") this.bar.hidden = true;
  }

  take(event, line) {
    switch (event.type) {
      case "call-start":
        this.name.textContent = event.name;
        this.turn("waiting");
        break;
      case "call-delta":
        this.written += event.text;
        this.brief.textContent = crop(this.written, 200);
        break;
      case "call":
        this.know(event.call, line);
        this.turn("ready");
        break;
      case "approval-requested":
        this.know(event.call, line);
        this.ask(event, line);
        break;
      case "executing":
        this.know(event.call, line);
        this.said.textContent = "";
        if (clientTools.has(event.call.name)) this.askForResult(event, line);
        else this.turn("executing");
        break;
      case "progress":
        this.progress(event.data);
        break;
      case "executed":
        this.know(event.call, line);
        this.said.textContent = event.message ?? "";
        this.turn("executed", `executed · ${seconds(event.elapsed)}`);
        this.folded.append(unfolding("Result", () => pretty(exact(line).result)));
        break;
      case "error":
        this.fail(event, line);
        break;
    }
  }

  know(call, line) {
    if (this.call) return;
    this.call = call;
    this.name.textContent = call.name;
    this.arguments = brief(exact(line).call.arguments);
    this.brief.textContent = this.arguments;
    this.folded.append(unfolding("Arguments", () => pretty(exact(line).call.arguments)));
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

  ask(event, line) {
    const until = event.expires ? new Date(event.expires * 1000) : null;
    const time = until?.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
    this.turn("asking");
    this.said.textContent = `May it run?${time ? ` Without an answer by ${time} it will not.` : ""}`;
    this.brief.textContent = "";
    const shown = element("pre", { class: "asked", tabindex: "0", "aria-label": "Arguments" }, pretty(exact(line).call.arguments));
    const reason = element("input", { type: "text", placeholder: "Why not? (optional, for the model)",
      "aria-label": "Reason for denying", maxlength: "500" });
    const answer = (approve) =>
      this.answer(event.call.id, approve ? { approve, shown: line } : { approve, reason: reason.value });
    reason.addEventListener("keydown", (key) => { if (key.key === "Enter" && !key.isComposing) answer(false); });
    this.actions.replaceChildren(shown,
      button("Approve", () => answer(true), { class: "primary" }), button("Deny", () => answer(false)), reason);
  }

  // Asks for what a tool of the front end has come to: JSON where it is some, and else text.
  askForResult(event, line) {
    this.turn("asking", "waits for your result");
    this.said.textContent = "This tool is yours to carry out. What has come of it?";
    this.brief.textContent = "";
    const shown = element("pre", { class: "asked", tabindex: "0", "aria-label": "Arguments" }, pretty(exact(line).call.arguments));
    const result = element("textarea", { rows: "2", placeholder: "The result: text, or JSON", "aria-label": "Result of the call" });
    const given = () => {
      try {
        return JSON.parse(result.value);
      } catch (error) {
        return result.value;
      }
    };
    this.actions.replaceChildren(shown, result,
      button("Send result", () => this.answer(event.call.id, { result: given() }), { class: "primary" }),
      button("It failed", () => this.answer(event.call.id, { error: result.value || "it failed" })));
  }

  async answer(call, decision) {
    const held = [...this.actions.querySelectorAll("button, input, textarea")];
    for (const each of held) each.disabled = true;
    const fault = await this.decide(call, decision);
    if (!fault) return;
    for (const each of held) each.disabled = false;
    this.said.textContent = sentence(fault);
  }

  fail(event, line) {
    if (event.call) this.know(event.call, line);
    this.said.textContent = sentence(event.message);
    const words = UNSUCCESSFUL[event.code] ?? "Failed";
    this.turn(event.code === "tool_denied" ? "denied" : "failed", words);
    this.folded.append(element("span", { class: "code" }, event.code));
    if (event.raw) this.folded.append(unfolding("As the model wrote it", () => event.raw));
  }

  // Notes that the run is over.
  end(isPending) {
    const state = this.node.dataset.state;
    if (["executed", "failed", "denied"].includes(state)) return;
    if (state === "asking" || isPending) this.said.textContent = "";
    this.turn("pending", isPending ? "left for somebody else to run" : "not run");
  }
}
