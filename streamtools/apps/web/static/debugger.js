"use strict";
// A recorded answer, step by step: bytes, events, the model's text and the visible text. The server has computed the state
// after each step (`Dissection`). This script draws it. A step is `[time, body, written, events, held]`: the milliseconds,
// the characters of the body and of the model's text, the number of events, and the number of buffered characters.

const ROWS = 5000; // listed rows
const AROUND = 20000; // characters of the body that are shown before and after the current position
const PAUSE = 20; // milliseconds for a step without a recorded time
STATES.pending = "complete · the debugger runs no tools";

const KINDS = { call: "a call", native: "a native call", error: "a malformed call", near: "a near miss", reasoning: "reasoning", markup: "markup", warning: "hidden", held: "buffered" };
const ENDS = { end: "", reset: "the connection broke", timeout: "the connection timed out", left: "the reader left" };

let shown = null; // the dissection
let at = 0; // the index of the step
let rows = []; // the rows of the event list (`EventRow`)
let turn = null; // the visible answer
let given = 0; // the number of events that the visible answer has received
let clock = null; // while playing: the recorded time, and the time of the last frame

const params = new URLSearchParams(location.search);
const counts = (index) => shown.steps[index] ?? [0, 0, 0, 0, 0];

async function load() {
  pause();
  const asked = new URLSearchParams();
  for (const name of ["of", "exchange", "cut"]) if (params.get(name)) asked.set(name, params.get(name));
  let loaded;
  try {
    loaded = await readBody(await fetch(`/dissection?${asked}`));
  } catch (error) {
    find("banner").hidden = false;
    find("banner").textContent = sentence(error.message);
    return;
  }
  find("banner").hidden = true;
  shown = loaded;
  shown.steps.unshift([0, 0, 0, 0, 0]);
  if (shown.steps.at(-1)[0] === 0) shown.steps.forEach((step, index) => { step[0] = index * PAUSE; });
  shown.parsed = shown.events.map(readEvent);
  find("player").disabled = false;
  name();
  list();
  drawAxis();
  find("step").max = shown.steps.length - 1;
  at = 0;
  turn = null;
  go(Number(params.get("step") ?? shown.steps.length - 1));
}

function name() {
  const of = params.get("of") || shown.names[0];
  const names = shown.names.includes(of) ? shown.names : [of, ...shown.names];
  choose("of", names.map((each) => [each, shown.names.includes(each) ? each : "this answer"]), of);
  const numbers = Array.from({ length: shown.exchanges }, (_, index) => String(index + 1));
  choose("exchange", numbers.map((each) => [each, `exchange ${each} of ${numbers.length}`]), params.get("exchange") ?? "1");
  find("exchange").hidden = numbers.length < 2;
  find("cut").value = params.get("cut") ?? "recorded";
  find("download").href = `/recording?of=${encodeURIComponent(of)}`;
  const near = shown.marks.filter(([, , kind]) => kind === "near").length;
  find("about").textContent = [shown.title || shown.question, shown.format,
    shown.dialects.length ? `calls in ${shown.dialects.join(", ")}` : "no calls in text",
    near ? countOf(near, "near miss", "near misses") : "", ENDS[shown.end] ?? "it is incomplete"].filter(Boolean).join(" · ");
  const kinds = new Set(["held", ...shown.marks.map(([, , kind]) => kind)]);
  find("legend").replaceChildren(...[...kinds].map((kind) => element("span", { class: kind === "held" ? "held" : `in-${kind}` }, KINDS[kind])));
}

function choose(id, options, value) {
  find(id).replaceChildren(...options.map(([each, text]) => element("option", { value: each }, text)));
  find(id).value = value;
}

function list() {
  rows = [];
  shown.events.forEach((line, index) => EventRow.add(rows, shown.parsed[index], line));
  let first = 0;
  rows = rows.slice(0, ROWS);
  for (const row of rows) {
    row.first = first;
    first += row.events.length;
    row.node = element("li", { "data-type": row.type, "data-at": row.first });
    row.drawn = -1; // the number of received events that the row shows
  }
  find("events").replaceChildren(...rows.map(({ node }) => node));
}

// The time axis: a tick for each chunk, and a taller one for each event about a call.
function drawAxis() {
  const ticks = shown.steps.slice(0, ROWS).map(([time, , , events], index) => {
    const types = shown.parsed.slice(counts(index - 1)[3], events).map(({ type }) => type);
    const isCall = types.some((type) => ["call-start", "call", "error"].includes(type));
    const tick = element("i", { class: isCall ? "call" : "" });
    tick.style.insetInlineStart = `${placeOf(time)}%`; // the content security policy forbids style attributes
    return tick;
  });
  const end = shown.steps.at(-1)[0];
  const labels = [0, 0.25, 0.5, 0.75, 1].map((part) => element("span", {}, part ? seconds((part * end) / 1000) : "0"));
  find("axis").replaceChildren(...ticks, element("b", { id: "now" }), element("div", {}, ...labels));
}

function placeOf(time) {
  return (100 * time) / (shown.steps.at(-1)[0] || 1);
}

function go(step) {
  at = Math.max(0, Math.min(shown.steps.length - 1, step));
  draw();
}

function draw() {
  const [time, body, written, events, held] = shown.steps[at];
  const [, bodyBefore, , eventsBefore] = counts(at - 1);
  find("step").value = at;
  find("step").setAttribute("aria-valuetext", `${at} of ${shown.steps.length - 1}`);
  find("where").textContent = `step ${at} of ${shown.steps.length - 1} · ${time.toFixed(time < 1000 ? 1 : 0)} ms`;
  find("now").style.insetInlineStart = `${placeOf(time)}%`;
  drawBytes(bodyBefore, body);
  drawWritten(written, held);
  drawEvents(eventsBefore, events);
  drawTurn(events);
}

function drawBytes(before, now) {
  let since = at; // the last step with events or text
  while (since > 0 && shown.steps[since][2] === counts(since - 1)[2] && shown.steps[since][3] === counts(since - 1)[3]) since--;
  const silent = at < shown.steps.length - 1 && since < at ? shown.steps[since][1] : now;
  const text = shown.body;
  const from = Math.min(silent, before);
  const mark = element("span", { class: silent < now ? "now waiting" : "now" }, text.slice(before, now));
  find("bytes").replaceChildren(text.slice(Math.max(0, from - AROUND), from), element("span", { class: "waiting" }, text.slice(from, before)),
    mark, element("span", { class: "later" }, text.slice(now, now + AROUND)));
  find("waiting").textContent = silent < now ? `${countOf(now - silent, "character", "characters")} without an event yet` : `${now.toLocaleString("en")} of ${text.length.toLocaleString("en")} characters`;
  reveal(find("bytes"), mark);
}

// The model's text, split at the marks and at the buffered text.
function drawWritten(now, held) {
  const places = new Set([0, now - held, now, shown.written.length]);
  for (const [begin, end] of shown.marks) places.add(begin).add(end);
  const sorted = [...places].sort((one, other) => one - other);
  const marks = shown.marks.toSorted(([one], [other]) => one - other);
  let [over, next] = [[], 0]; // the marks over the piece, and the index of the next mark
  const pieces = document.createDocumentFragment();
  let cursor = null;
  let hidden = null;
  for (let index = 0; index < sorted.length - 1; index++) {
    const [from, to] = [sorted[index], sorted[index + 1]];
    while (next < marks.length && marks[next][0] <= from) over.push(marks[next++]);
    over = over.filter(([, end]) => to <= end);
    const piece = element("span", {}, shown.written.slice(from, to));
    for (const [, , kind, label] of over) {
      piece.classList.add(`in-${kind}`);
      piece.title = label ? `${KINDS[kind]}: ${label}` : KINDS[kind];
    }
    if (from >= now) piece.classList.add("later");
    else if (from >= now - held) piece.classList.add("held");
    if (to === now) {
      cursor = piece;
      hidden = over.find(([, end, kind]) => end > now && ["call", "error"].includes(kind)) ?? null;
    }
    pieces.append(piece);
  }
  find("written").replaceChildren(pieces);
  find("held").textContent = held ? `${countOf(held, "character is", "characters are")} buffered: a marker may begin here`
    : hidden ? `${countOf(now - hidden[0], "character is", "characters are")} hidden: ${KINDS[hidden[2]]} in ${hidden[3]}` : "nothing is buffered";
  reveal(find("written"), cursor ?? find("written").firstElementChild);
}

function drawEvents(before, now) {
  let last = null;
  for (const row of rows) {
    const received = Math.max(0, Math.min(now - row.first, row.events.length));
    if (received !== row.drawn) row.node.replaceChildren(...row.cells(received || row.events.length));
    row.drawn = received;
    row.node.classList.toggle("later", !received);
    row.node.classList.toggle("now", before < row.first + received && received > 0);
    if (received) last = row.node;
  }
  find("counted").textContent = `${now.toLocaleString("en")} of ${countOf(shown.events.length, "event", "events")}`;
  reveal(find("events"), last ?? rows[0]?.node);
}

function drawTurn(now) {
  if (turn === null || now < given) {
    turn = new Turn(shown.question, "", () => "");
    given = 0;
    find("shown").replaceChildren(turn.body);
  }
  for (; given < now; given++) turn.take(shown.parsed[given], shown.events[given]);
  turn.show(Infinity);
  reveal(find("shown"), turn.body.lastElementChild);
}

function reveal(pane, node) {
  if (!node) return;
  const [outer, inner] = [pane.getBoundingClientRect(), node.getBoundingClientRect()];
  if (inner.bottom > outer.bottom) pane.scrollTop += inner.bottom - outer.bottom + 24;
  else if (inner.top < outer.top) pane.scrollTop -= outer.top - inner.top + 24;
}

function play() {
  if (at === shown.steps.length - 1) go(0);
  clock = { time: shown.steps[at][0], frame: null };
  find("play").textContent = "Pause";
  requestAnimationFrame(tick);
}

function pause() {
  clock = null;
  find("play").textContent = "Play";
}

function tick(frame) {
  if (clock === null) return;
  clock.time += (clock.frame === null ? 0 : frame - clock.frame) * Number(find("speed").value);
  clock.frame = frame;
  let next = at;
  while (next < shown.steps.length - 1 && shown.steps[next + 1][0] <= clock.time) next++;
  if (next !== at) go(next);
  if (at === shown.steps.length - 1) stay();
  else requestAnimationFrame(tick);
}

// Stops playing, and puts the step into the address.
function stay() {
  pause();
  params.set("step", at);
  history.replaceState(null, "", `?${params}`);
}

function move(step) {
  go(step);
  stay();
}

for (const id of ["of", "exchange", "cut"]) {
  find(id).addEventListener("change", () => {
    params.set(id, find(id).value);
    if (id === "of") params.delete("exchange");
    params.delete("step");
    history.replaceState(null, "", `?${params}`);
    load();
  });
}
find("play").addEventListener("click", () => (clock === null ? play() : stay()));
find("axis").addEventListener("click", (event) => {
  const { left, width } = find("axis").getBoundingClientRect();
  const time = ((event.clientX - left) / width) * shown.steps.at(-1)[0];
  const distances = shown.steps.map(([each]) => Math.abs(each - time));
  move(distances.indexOf(Math.min(...distances)));
});
find("back").addEventListener("click", () => move(at - 1));
find("on").addEventListener("click", () => move(at + 1));
find("step").addEventListener("input", () => move(Number(find("step").value)));
find("events").addEventListener("click", (event) => {
  const row = event.target.closest("li");
  if (row) move(shown.steps.findIndex(([, , , events]) => events > Number(row.dataset.at)));
});
document.addEventListener("keydown", (event) => {
  if (shown === null || event.altKey || event.ctrlKey || event.metaKey || event.target.matches("select, input, button, a")) return;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: shown.steps.length - 1 }[event.key];
  if (to === undefined && event.key !== " ") return;
  event.preventDefault();
  if (to !== undefined) move(to);
  else if (clock === null) play();
  else stay();
});
load();
