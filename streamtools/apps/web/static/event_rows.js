"use strict";
// The rows of a list of events. Consecutive deltas of the same text share a row.

const DELTAS = ["text", "reasoning", "call-delta"];

class EventRow {
  constructor() {
    this.events = [];
    this.lines = []; // the JSON of the events
  }

  // Adds an event to the last of `rows`, or to a new row.
  static add(rows, event, line) {
    const [last] = rows.at(-1)?.events ?? [];
    const joins = last && DELTAS.includes(event.type) && event.type === last.type && event.call_id === last.call_id;
    if (!joins) rows.push(new EventRow());
    rows.at(-1).events.push(event);
    rows.at(-1).lines.push(line);
  }

  get type() {
    return this.events[0].type;
  }

  // Returns the cells for the first `count` events.
  cells(count = this.events.length) {
    const events = this.events.slice(0, count);
    const [first, last] = [events[0].seq, events.at(-1).seq];
    const data = this.lines[0].replace(`"type":${JSON.stringify(this.type)}`, "").replace(/,?"seq":\d+(?=\}$)/, "").replace(/^\{,?/, "{");
    const shown = DELTAS.includes(this.type) ? JSON.stringify(events.map(({ text }) => text).join("")) : data === "{}" ? "" : data;
    return [
      element("span", { class: "seq" }, first === last ? String(first) : `${first}–${last}`),
      element("span", { class: "type" }, this.type),
      element("span", { class: "json" }, crop(shown, 300))];
  }
}
