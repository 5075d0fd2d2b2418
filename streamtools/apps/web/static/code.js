"use strict";
// Code blocks: the language, a copy button, and syntax highlighting.
//
// highlight.js knows the languages of its standard build. A block in another language, or a long block, is not
// highlighted: some patterns take quadratic time.

const MOST_COLOURED = 20_000; // characters

// Returns a node with a span of a class for each token.
function highlighted(text, language) {
  if (text.length > MOST_COLOURED || !hljs.getLanguage(language)) return text;
  const { value } = hljs.highlight(text, { language, ignoreIllegals: true });
  return DOMPurify.sanitize(value, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true });
}

// Adds the language and the copy button to finished code blocks.
function finishCode(made) {
  for (const pre of made.querySelectorAll("pre")) {
    const code = pre.firstElementChild;
    const text = code.textContent;
    const language = pre.dataset.language ?? "";
    code.replaceChildren(highlighted(text, language));
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
