"use strict";
// The page: questions, answers, and other tabs of the same browser.
//
// The server has the state. A page that is loaded, that becomes visible, or that is notified by another tab requests the
// list of runs, and reads each run from the last event that it has.

const inspector = new Inspector();
const tabs = new BroadcastChannel("streamtools");
const turns = new Map(); // by run id
let firstRun = null; // the first run of the conversation on the server
let isNew = false; // the next question replaces all turns on the server, which the page does not show
let changes = 0; // how often this page has begun a conversation, or sent a question
let server = null; // the id of the server that has these turns
let suggestions = [];
const waiting = []; // questions that wait for the end of the answer
let isBlocked = false; // a waiting question could not be sent, so the user must send it
let sendError = ""; // why a question could not be sent
let isSending = false; // a question is being sent, or a new conversation begins
let editing = null; // the run whose question is edited
let sentAt = 0; // when the last question was sent
let busy = null; // the running refresh
let again = false;
let drawing = 0;
let retry = 0; // the timer of the next attempt to connect
let follows = true; // whether the transcript stays scrolled to its end
let scrollPosition = 0; // the scroll position at the last frame
let reading = Promise.resolve();

const RESTARTED = "The server was restarted and has lost this conversation. The next question begins a new one.";

const question = find("question");
const talk = find("talk");

// Drawing.

function draw() {
  drawing = drawing || requestAnimationFrame((now) => {
    drawing = 0;
    paint(now);
  });
}

function paint(now) {
  let left = false;
  for (const turn of turns.values()) left = turn.show(now) || left;
  inspector.show();
  if (follows && turns.size) talk.scrollTop = talk.scrollHeight;
  scrollPosition = talk.scrollTop;
  if (left) draw();
}

function running() {
  return [...turns.values()].findLast((turn) => !turn.ended);
}

function updateControls() {
  const isRunning = Boolean(running());
  find("send").hidden = isRunning;
  find("stop").hidden = !isRunning;
  find("send").disabled = find("begin").disabled = isSending;
  find("empty").hidden = turns.size > 0;
  find("begin").hidden = find("copy").hidden = turns.size === 0;
  find("more").hidden = turns.size === 0 || suggestions.length === 0;
  question.placeholder = isRunning ? "Your next message" : "Ask something";
  find("queue").hidden = waiting.length === 0;
  find("queue").replaceChildren(...waiting.map(({ question: text }, at) => element("li", {}, element("span", {}, crop(text, 200)),
    button("Remove", () => { waiting.splice(at, 1); updateControls(); question.focus(); }, { "aria-label": `Remove “${crop(text, 60)}”` }))));
  if (waiting.length && !isRunning && !isSending && !isBlocked) ask(waiting.shift());
}

// Sends the question, or keeps it until the current answer has ended.
function submit() {
  const text = question.value;
  if (!text.trim()) return;
  if (!isSending && !running()) {
    ask({ question: text, ...(editing === null ? {} : { replace: editing }) });
    return;
  }
  waiting.push({ question: text });
  editing = null;
  clearInput();
  announce("The message will be sent after the answer.");
  updateControls();
}

function clearInput() {
  question.value = "";
  resize();
}

function banner(text) {
  find("banner").hidden = !text;
  find("banner").textContent = text;
}

function announce(text) {
  find("status").textContent = text;
}

function drawSuggestions(node) {
  node.replaceChildren(...suggestions.map(({ name, title, question: asked }) =>
    element("li", {}, element("button", { type: "button", "data-name": name, onclick: () => ask({ question: asked, suggestion: name }) },
      element("span", { class: "title" }, title), element("span", { class: "asks" }, crop(asked.replace(/\s+/g, " "), 90))))));
}

// The state of the server.

function refresh() {
  again = Boolean(busy);
  busy = busy || loadState().finally(() => {
    busy = null;
    if (again) refresh();
  });
  return busy;
}

async function loadState() {
  const before = changes;
  let known;
  try {
    known = await conversation();
  } catch (error) {
    banner("The server cannot be reached. Trying again …");
    clearTimeout(retry);
    retry = setTimeout(refresh, 1000);
    return;
  }
  if (before !== changes) return; // this state is outdated, and another refresh follows
  firstRun = known.turns[0]?.run ?? null;
  if (isNew) known.turns = [];
  if (server !== null && server !== known.server) {
    for (const turn of turns.values()) if (!turn.ended) turn.lose("The server was restarted and has lost this answer. The text above is what had arrived.");
  } else {
    const runs = new Set(known.turns.map((turn) => turn.run));
    const own = [...turns.values()].filter((turn) => turn.server === known.server);
    const kept = own.slice(own.findIndex((turn) => runs.has(turn.run))); // the server drops the first turns of a long conversation
    if (kept.some((turn) => !runs.has(turn.run))) removeTurns();
  }
  server = known.server;
  const isForgotten = turns.size > 0 && [...turns.values()].every((turn) => turn.server !== server);
  banner(isForgotten && !known.turns.length ? RESTARTED : sendError);
  suggestions = known.suggestions;
  for (const name of known.client_tools) clientTools.add(name);
  find("label").textContent = known.label;
  find("note").textContent = known.note;
  find("tools").replaceChildren(...known.tools.map(({ name, about }) => element("li", {}, element("b", {}, name), ` ${about}`)));
  drawSuggestions(find("suggestions"));
  drawSuggestions(find("more").querySelector("ul"));
  for (const turn of known.turns) if (!turns.has(turn.run)) show(turn);
  updateControls();
}

function show({ run, question: asked, recorded }, begun = 0) {
  if (turns.has(run)) return;
  const turn = new Turn(asked, run, decide);
  turn.server = server;
  turn.recorded = recorded;
  turn.begun = begun;
  turns.set(run, turn);
  find("transcript").append(turn.node);
  follows = true;
  draw();
  reading = reading.then(() => read(turn)); // in order: only the last run can be unfinished
}

async function read(turn) {
  const take = (event, line) => {
    if (!turn.take(event)) return;
    inspector.add({ event, line });
    draw();
    if (event.type === "approval-requested") announce(`${event.call.name} asks for your approval.`);
    if (event.type === "step-start") announce("The answer is being written.");
    if (event.type === "executing") announce(`${event.call.name} is executing.`);
    if (event.type === "done") {
      paint(performance.now()); // a background tab gets no frames
      announce(turn.said);
    }
  };
  for (let wait = 250; !turn.ended; wait = Math.min(2 * wait, 4000)) {
    const before = turn.seen;
    try {
      await follow(turn.run, turn.seen, take, turn.left.signal);
    } catch (error) {
      if (error.status === 404) {
        await refresh(); // if the server was restarted, this reports it
        if (!turn.ended) turn.lose("The server no longer has this answer.");
      }
    }
    if (turn.seen > before) wait = 250;
    if (!turn.ended) {
      await refresh();
      if (!turn.ended) await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
  if (!turn.left.signal.aborted) turn.node.append(actionRow(turn));
  draw();
  updateControls(); // sends a waiting question last, so that its error stays visible
}

// Removes the turns from an index on.
function removeTurns(from = 0) {
  for (const turn of [...turns.values()].slice(from)) {
    turn.leave();
    turn.node.remove();
    turns.delete(turn.run);
  }
  if (!turns.size) inspector.clear();
}

// Actions.

async function ask(asked) {
  if (isSending || running()) return;
  isSending = true;
  sentAt = performance.now();
  updateControls();
  try {
    const created = await postJson("/runs", isNew ? { ...asked, replace: firstRun } : asked);
    isNew = false;
    changes += 1;
    isBlocked = false;
    sendError = "";
    editing = null;
    if (asked.question === question.value) clearInput();
    find("more").open = false;
    announce("The answer is being written.");
    if (asked.replace) removeTurns([...turns.keys()].indexOf(asked.replace));
    show(created, sentAt);
    tabs.postMessage("changed");
    await refresh();
  } catch (error) {
    announce("");
    sendError = error instanceof Refusal ? sentence(`The question was not sent: ${error.message}`) : "The question was not sent: the server cannot be reached.";
    banner(sendError);
    isBlocked = true;
    if (!question.value) question.value = asked.question;
    else if (asked.question !== question.value) waiting.unshift(asked);
    if (error.status === 409) {
      isNew = false;
      refresh();
    }
  } finally {
    isSending = false;
    updateControls();
    question.focus();
  }
}

// Stops the answer and shows an empty page. The next question begins a conversation, which replaces this one.
async function begin() {
  isSending = true;
  waiting.length = 0;
  updateControls();
  await stop();
  isNew = true;
  changes += 1;
  removeTurns();
  cancelEdit();
  isSending = isBlocked = false;
  sendError = "";
  announce("");
  await refresh();
  updateControls();
  question.focus();
}

// Lets the user edit a question. The new question replaces it.
function edit(turn) {
  editing = turn.run;
  question.value = turn.question;
  resize();
  announce("Sending replaces the question. Esc cancels.");
  question.focus();
}

function cancelEdit() {
  if (editing === null) return;
  editing = null;
  clearInput();
  announce("");
}

async function stop() {
  const turn = running();
  if (!turn || find("stop").disabled) return;
  find("stop").disabled = true;
  announce("Stopping …");
  try {
    await postJson(`/runs/${encodeURIComponent(turn.run)}/stop`);
  } catch (error) {
    announce(sentence(`It could not be stopped: ${error.message}`));
  } finally {
    find("stop").disabled = false;
    question.focus();
  }
}

async function decide(run, call, decision) {
  try {
    await postJson(`/runs/${encodeURIComponent(run)}/calls/${encodeURIComponent(call)}`, decision);
    question.focus();
    return "";
  } catch (error) {
    return error instanceof Refusal ? error.message : "The server cannot be reached";
  }
}

function resize() {
  question.style.height = "auto";
  question.style.height = `${Math.min(question.scrollHeight + 2, 200)}px`;
}

find("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    find("ask").requestSubmit();
  }
  if (event.key === "ArrowUp" && !question.value && !running() && turns.size) {
    event.preventDefault();
    [...turns.values()].at(-1).node.querySelector(".edit").click();
  }
});
question.addEventListener("input", resize);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") (editing === null ? stop : cancelEdit)(); });
talk.addEventListener("scroll", () => {
  follows = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 60 || (follows && scrollPosition - talk.scrollTop < 60); // the page may just have grown
  find("latest").hidden = follows || !turns.size;
}, { passive: true });
find("latest").addEventListener("click", () => {
  follows = true;
  paint(performance.now());
  question.focus();
});
for (const each of [talk, find("transcript")]) new ResizeObserver(draw).observe(each);
find("stop").addEventListener("click", stop);
find("begin").addEventListener("click", begin);
find("inspect").addEventListener("click", () => inspector.toggle(!inspector.open));
tabs.addEventListener("message", refresh);
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
window.addEventListener("online", refresh);
refresh();
