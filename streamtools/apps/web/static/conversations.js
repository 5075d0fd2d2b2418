"use strict";
// The conversations that the server keeps: which are there, and how one goes from one to another.

const KEY = "conversations"; // in the storage: whether the list is open
let drawn = ""; // the list that is drawn

// Has the address say which conversation is shown.
function go(id, how) {
  chosen = id;
  history[how](null, "", `?of=${encodeURIComponent(id)}`);
}

// Shows another conversation; its answer goes on, and so does that of the one before.
async function visit(id, how = "pushState") {
  if (how) go(id, how);
  else chosen = id;
  forget();
  leaveEdit();
  waiting.length = 0;
  held = false;
  unsent = "";
  banner("");
  say("");
  await refresh();
  question.focus();
}

function listed({ conversations }) {
  find("none").hidden = conversations.length > 0;
  const now = JSON.stringify([conversations, chosen]);
  if (now === drawn) return; // a button that is about to be pressed stays
  drawn = now;
  find("kept").replaceChildren(...conversations.map(({ id, title, running }) => element("li", {},
    element("button", { type: "button", class: "quiet title", "aria-current": id === chosen ? "true" : null, onclick: () => visit(id) },
      running ? element("span", { class: "runs" }, element("span", { "aria-hidden": "true" }, "● "), element("span", { class: "unseen" }, "Being answered: ")) : "",
      title.replace(/\s+/g, " ")),
    button("Delete", (event) => drop(id, title, event.currentTarget), { class: "quiet", "aria-label": `Delete “${crop(title, 60)}”` }))));
}

// Deletes a conversation, once it has been said twice.
async function drop(id, title, pressed) {
  if (!pressed.dataset.sure) {
    pressed.dataset.sure = "asked";
    pressed.textContent = "Really?";
    pressed.setAttribute("aria-label", `Really delete “${crop(title, 60)}”?`);
    return;
  }
  try {
    await tell(`/conversation/${encodeURIComponent(id)}/delete`);
  } catch (error) {
    if (error.status !== 404) banner(error instanceof Refusal ? sentence(error.message) : "It was not deleted: there is no connection to the server.");
    if (error.status !== 404) return;
  }
  tabs.postMessage("changed");
  if (id === chosen) await visit("", "replaceState");
  else await refresh();
}

function browse(shown) {
  find("conversations").hidden = !shown;
  find("browse").setAttribute("aria-pressed", shown);
  try {
    localStorage.setItem(KEY, shown ? "open" : "");
  } catch (error) {
    // it lasts as long as the page
  }
}

find("browse").addEventListener("click", () => browse(find("conversations").hidden));
try {
  browse(localStorage.getItem(KEY) === "open");
} catch (error) {
  browse(false);
}
window.addEventListener("popstate", () => visit(new URLSearchParams(location.search).get("of"), null));
