"use strict";
// The events in order, next to the transcript. Rows are created only while the list is open.

const ROWS = 1000; // shown rows

class Inspector {
  constructor() {
    this.rows = []; // the last rows, at most twice as many as are shown
    this.dropped = 0; // the number of earlier rows, which are deleted
    this.received = 0; // the number of events that have arrived
    this.skips = false; // whether the numbers of the events have gaps
    this.seq = 0; // the number of the last event
    this.made = 0; // the number of rows, including deleted ones, that are drawn and up to date
    this.list = find("events");
    this.open = false;
    this.list.addEventListener("click", (event) => {
      const row = event.target.closest("summary");
      if (row) this.unfold(row.parentElement);
    });
  }

  clear() {
    this.rows = [];
    this.dropped = this.received = this.made = this.seq = 0;
    this.skips = false;
    this.list.replaceChildren();
    this.count();
  }

  add({ event, line }) {
    const before = this.rows.length;
    EventRow.add(this.rows, event, line);
    this.received += 1;
    this.skips ||= event.seq > 1 && event.seq !== this.seq + 1;
    this.seq = event.seq;
    if (this.rows.length === before) this.made = Math.min(this.made, this.dropped + before - 1); // the last row has changed
    if (this.rows.length > 2 * ROWS) this.dropped += this.rows.splice(0, ROWS).length;
  }

  toggle(open) {
    this.open = open;
    find("inspector").hidden = !open;
    find("inspect").setAttribute("aria-pressed", open);
    document.body.classList.toggle("inspecting", open);
    this.show();
  }

  count() {
    const hidden = this.dropped + this.rows.length > ROWS;
    const said = countOf(this.received, "event", "events");
    find("counted").textContent = said + (hidden ? `, the last ${ROWS.toLocaleString("en")} rows below` : "")
      + (this.skips ? " · gaps: events for the backend" : "");
  }

  show() {
    if (!this.open) return;
    this.count();
    const length = this.dropped + this.rows.length;
    if (this.made === length) return;
    const follows = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 60;
    const created = document.createDocumentFragment();
    for (let at = Math.max(this.made, length - ROWS); at < length; at++) {
      const cells = this.rows[at - this.dropped].cells();
      const row = this.list.querySelector(`[data-at="${at}"]`);
      if (row) row.querySelector("summary").replaceChildren(...cells);
      else created.append(element("details", { "data-at": at, "data-type": this.rows[at - this.dropped].type }, element("summary", {}, ...cells)));
    }
    this.list.append(created);
    this.made = length;
    while (this.list.childElementCount > ROWS) this.list.firstElementChild.remove();
    if (follows) this.list.scrollTop = this.list.scrollHeight;
  }

  unfold(row) {
    row.querySelector("pre")?.remove();
    const pre = element("pre");
    row.append(pre);
    const { lines } = this.rows[row.dataset.at - this.dropped];
    new LongText(pre).append(lines.length === 1 ? pretty(exact(lines[0])) : lines.join("\n"));
  }
}
