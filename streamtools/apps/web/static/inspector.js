"use strict";
// The events in order, one a line, next to the transcript. Lines are created only while the list is open.

const ROWS = 1000; // shown lines

class Inspector {
  constructor() {
    this.lines = []; // the last events, twice as many as are shown
    this.dropped = 0; // the number of events before these
    this.made = 0;
    this.list = find("events");
    this.open = false;
    this.list.addEventListener("click", (event) => {
      const row = event.target.closest("summary");
      if (row) this.unfold(row.parentElement);
    });
  }

  clear() {
    this.lines = [];
    this.dropped = this.made = 0;
    this.list.replaceChildren();
    this.count();
  }

  get length() {
    return this.dropped + this.lines.length;
  }

  add(line) {
    this.lines.push(line);
    if (this.lines.length > 2 * ROWS) this.dropped += this.lines.splice(0, ROWS).length;
  }

  toggle(open) {
    this.open = open;
    find("inspector").hidden = !open;
    find("inspect").setAttribute("aria-pressed", open);
    document.body.classList.toggle("inspecting", open);
    this.show();
  }

  count() {
    const hidden = Math.max(0, this.length - ROWS);
    const said = countOf(this.length, "event", "events");
    find("counted").textContent = hidden ? `${said}, the last ${ROWS.toLocaleString("en")} below` : said;
  }

  show() {
    if (!this.open) return;
    this.count();
    if (this.made === this.length) return;
    const follows = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 60;
    const from = Math.max(this.made, this.length - ROWS);
    const rows = document.createDocumentFragment();
    for (let at = from; at < this.length; at++) rows.append(this.row(at));
    this.list.append(rows);
    this.made = this.length;
    while (this.list.childElementCount > ROWS) this.list.firstElementChild.remove();
    if (follows) this.list.scrollTop = this.list.scrollHeight;
  }

  row(at) {
    const { event, line } = this.lines[at - this.dropped];
    const rest = line.replace(`"type":${JSON.stringify(event.type)}`, "").replace(/,?"seq":\d+(?=\}$)/, "").replace(/^\{,?/, "{");
    return element("details", { "data-at": at, "data-type": event.type },
      element("summary", {},
        element("span", { class: "seq" }, String(event.seq)),
        element("span", { class: "type" }, event.type),
        element("span", { class: "json" }, crop(rest === "{}" ? "" : rest, 300))));
  }

  unfold(row) {
    if (row.querySelector("pre")) return;
    const pre = element("pre");
    row.append(pre);
    new LongText(pre).append(pretty(exact(this.lines[row.dataset.at - this.dropped].line)));
  }
}
