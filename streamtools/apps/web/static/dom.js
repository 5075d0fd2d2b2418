"use strict";
// Elements, created without parsing text as HTML.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function find(id) {
  return document.getElementById(id);
}

function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, text);
}

const LONG = 100000; // characters that are shown in one part

// Text of any length. A button shows the text after the first part.
class LongText {
  constructor(node) {
    this.node = node;
    this.shown = 0;
    this.bound = LONG;
    this.rest = "";
    this.more = null;
  }

  append(text) {
    const room = Math.max(0, this.bound - this.shown);
    if (!this.rest && room) {
      this.node.append(text.slice(0, room)); // a new node, so that the text before it is not laid out again
      this.shown += Math.min(room, text.length);
      text = text.slice(room);
    }
    if (!text) return;
    this.rest += text;
    if (!this.more) {
      this.more = button("", () => this.showMore(), { class: "quiet more" });
      this.node.after(this.more);
    }
    this.more.textContent = `Show ${countOf(this.rest.length, "more character", "more characters")}`;
  }

  showMore() {
    const rest = this.rest;
    this.rest = "";
    this.bound = this.shown + LONG;
    this.more.remove();
    this.more = null;
    this.append(rest);
  }
}

function collapsible(summary, text, attributes = {}) {
  const pre = element("pre", { tabindex: "0", "aria-label": summary });
  const shown = element("details", attributes, element("summary", {}, summary), pre);
  shown.addEventListener("toggle", () => { if (shown.open && !pre.firstChild) new LongText(pre).append(text()); });
  return shown;
}

// Parses JSON for display. Numbers keep their digits, which `JSON.parse` rounds.
function exact(line) {
  if (!JSON.rawJSON) return JSON.parse(line); // a browser from before 2025
  return JSON.parse(line, (name, value, { source }) =>
    typeof value === "number" && String(value) !== source ? JSON.rawJSON(source) : value);
}

// Parses an event. Arguments and results keep their digits.
function readEvent(line) {
  const event = JSON.parse(line);
  if (!event.call) return event;
  const { call, result } = exact(line);
  event.call.arguments = call.arguments;
  return event.type === "executed" ? { ...event, result } : event;
}

function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "null";
}
