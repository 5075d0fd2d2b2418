"use strict";
// Blocks of code: what language they say they are in, a button that copies them, and their tokens in colours.
//
// Comments, strings, numbers and the words that many languages share are told apart, which is what helps to read; a
// language that is not known here stays plain. Each pattern goes on to the end of what it has begun, so that no text is
// looked through twice.

const WORDS = new Set(("abstract and as assert async await begin bool boolean break case catch char class const continue def default defer del do done double elif else elseif end enum " +
  "esac except export extends extern false False fi final finally float fn for foreach from fun func function go if impl implements import in include int interface is lambda let local long " +
  "loop match module mod mut namespace new nil None nonlocal not null Null number object of or override package pass private protected pub public raise require return self Self set short " +
  "static str string struct super switch then this throw throws trait true True try type typedef typeof union unless unsafe unsigned until use using var virtual void where while with yield " +
  "SELECT FROM WHERE INSERT UPDATE DELETE CREATE TABLE INTO VALUES JOIN LEFT ON GROUP ORDER BY LIMIT AND OR NOT NULL AS SET DISTINCT HAVING UNION").split(" "));
const SLASHES = String.raw`\/\/[^\n]*|\/\*[^]*?(?:\*\/|$)`;
const COMMENTS = {
  [SLASHES]: "c cc cpp c++ cs csharp css dart go golang h java javascript js json jsonc jsx kotlin kt php rs rust scala scss swift ts tsx typescript",
  "#[^\\n]*": "bash dockerfile elixir fish ini makefile nix perl pl powershell ps1 py python python3 r rb ruby sh shell toml yaml yml zsh",
  "--[^\\n]*": "elm haskell hs lua sql",
};
const PATTERNS = new Map(Object.entries(COMMENTS).flatMap(([comment, names]) => {
  const pattern = new RegExp(`(?<comment>${comment})|(?<string>"""[^]*?(?:"""|$)|"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|\`(?:\\\\[^]|[^\`\\\\])*\`?)|(?<number>\\b\\d[\\w.]*)|(?<word>[\\p{L}_$][\\w$]*)`, "gu");
  return names.split(" ").map((name) => [name, pattern]);
}));

// Returns text as nodes, its tokens as elements of a class.
function coloured(text, language) {
  const pattern = PATTERNS.get(language.toLowerCase());
  if (!pattern) return [text];
  const nodes = [];
  let at = 0;
  for (const found of text.matchAll(pattern)) {
    const { comment, string, number, word } = found.groups;
    const kind = comment ? "comment" : string ? "string" : number ? "number" : WORDS.has(word) ? "keyword" : null;
    if (!kind) continue;
    nodes.push(text.slice(at, found.index), element("span", { class: `hl-${kind}` }, found[0]));
    at = found.index + found[0].length;
  }
  return [...nodes, text.slice(at)];
}

// Finishes the blocks of code of what will not change any more.
function finishCode(made) {
  for (const pre of made.querySelectorAll("pre")) {
    const code = pre.firstElementChild;
    const text = code.textContent;
    const language = pre.dataset.language ?? "";
    code.replaceChildren(...coloured(text, language));
    const frame = element("div", { class: "code" });
    pre.replaceWith(frame);
    frame.append(element("div", { class: "head" }, element("span", {}, language),
      button("Copy", (event) => copy(text, event.currentTarget), { class: "quiet", "aria-label": "Copy code" })), pre);
  }
  return made;
}

async function copy(text, pressed) {
  const label = pressed.textContent;
  try {
    await navigator.clipboard.writeText(text);
    pressed.textContent = "Copied";
  } catch (error) {
    pressed.textContent = "Not copied";
  }
  setTimeout(() => { pressed.textContent = label; }, 1500);
}
