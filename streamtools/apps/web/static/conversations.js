"use strict";
// The list of conversations, and switching between them.

const KEY = "conversations"; // in localStorage: whether the list is open
let drawn = ""; // the drawn list, as JSON

// Puts the id of the conversation into the address.
function setAddress(id, how) {
  chosen = id;
  history[how](null, "", `?of=${encodeURIComponent(id)}`);
}

// Shows another conversation. Both answers continue.
async function openConversation(id, how = "pushState") {
  if (how) setAddress(id, how);
  else chosen = id;
  removeTurns();
  cancelEdit();
  waiting.length = 0;
  isBlocked = false;
  sendError = "";
  banner("");
  announce("");
  await refresh();
  question.focus();
}

function drawConversations({ conversations }) {
  find("none").hidden = conversations.length > 0;
  const now = JSON.stringify([conversations, chosen]);
  if (now === drawn) return; // a button that is being pressed must stay
  drawn = now;
  find("kept").replaceChildren(...conversations.map(({ id, title, running }) => element("li", {},
    element("button", { type: "button", class: "quiet title", "aria-current": id === chosen ? "true" : null, onclick: () => openConversation(id) },
      running ? element("span", { class: "runs" }, element("span", { "aria-hidden": "true" }, "● "), element("span", { class: "unseen" }, "Being answered: ")) : "",
      title.replace(/\s+/g, " ")),
    button("Delete", (event) => deleteConversation(id, title, event.currentTarget), { class: "quiet", "aria-label": `Delete “${crop(title, 60)}”` }))));
}

// Deletes a conversation after a second click.
async function deleteConversation(id, title, pressed) {
  if (!pressed.dataset.sure) {
    pressed.dataset.sure = "asked";
    pressed.textContent = "Really?";
    pressed.setAttribute("aria-label", `Really delete “${crop(title, 60)}”?`);
    return;
  }
  try {
    await postJson(`/conversation/${encodeURIComponent(id)}/delete`);
  } catch (error) {
    if (error.status !== 404) banner(error instanceof Refusal ? sentence(error.message) : "It was not deleted: there is no connection to the server.");
    if (error.status !== 404) return;
  }
  tabs.postMessage("changed");
  if (id === chosen) await openConversation("", "replaceState");
  else await refresh();
}

function showConversations(shown) {
  find("conversations").hidden = !shown;
  find("browse").setAttribute("aria-pressed", shown);
  try {
    localStorage.setItem(KEY, shown ? "open" : "");
  } catch (error) {
    // storage is disabled
  }
}

find("browse").addEventListener("click", () => showConversations(find("conversations").hidden));
try {
  showConversations(localStorage.getItem(KEY) === "open");
} catch (error) {
  showConversations(false);
}
window.addEventListener("popstate", () => openConversation(new URLSearchParams(location.search).get("of"), null));
