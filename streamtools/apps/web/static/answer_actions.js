"use strict";
// The buttons below a finished answer: copy, ask again, edit, and the link to the debugger.

const hasRun = ({ state, call, code }) => call && (state === "executed" || (state === "failed" && code));

function actionRow(turn) {
  const row = element("div", { class: "doings" });
  const again = () => confirmAndRun(row, turn, () => ask({ question: turn.question, replace: turn.run }));
  row.append(
    button("Copy", (event) => copy(turn.markdown, event.currentTarget), { class: "quiet" }),
    button(turn.failed ? "Retry" : "Ask again", again, { class: "quiet" }),
    button("Edit", () => confirmAndRun(row, turn, () => edit(turn)), { class: "quiet edit" }),
    turn.recorded ? element("a", { href: `/debugger?of=${encodeURIComponent(turn.run)}` }, "Debug") : "",
    element("span", {}, turn.figures()));
  return row;
}

// Runs `action`. If tools may run again, or later turns are removed, asks the user first.
function confirmAndRun(row, turn, action) {
  const later = [...turns.values()].slice([...turns.values()].indexOf(turn));
  const ran = new Set(later.flatMap((each) => each.calls).filter(hasRun).map(({ call }) => call.name));
  if (!ran.size && later.length < 2) return action();
  const all = [...row.childNodes];
  const back = () => row.replaceChildren(...all);
  const yes = button("Continue", () => { back(); action(); }, { class: "primary" });
  row.replaceChildren(element("span", { role: "alert" }, [ran.size ? `This may run ${[...ran].join(", ")} again.` : "", later.length > 1 ? "This removes the later questions." : ""].filter(Boolean).join(" ")),
    yes, button("Cancel", back));
  yes.focus();
}

function asMarkdown() {
  return [...turns.values()].map((turn) => `## ${turn.question.replace(/\n/g, "\n## ")}\n\n${turn.markdown.trim()}\n`).join("\n");
}

find("copy").addEventListener("click", (event) => copy(asMarkdown(), event.currentTarget));
