"use strict";
// Blocks of code: what language they say they are in, a button that copies them, and their tokens in colours.
//
// highlight.js tells the tokens apart, of the languages in its usual build; a block of another language, or a long one,
// stays plain: its patterns may look through a text more than once.

const MOST_COLOURED = 20_000; // characters

// Returns text as a node, its tokens as elements of a class.
function coloured(text, language) {
  if (text.length > MOST_COLOURED || !hljs.getLanguage(language)) return text;
  const { value } = hljs.highlight(text, { language, ignoreIllegals: true });
  return DOMPurify.sanitize(value, { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true });
}

// Finishes the blocks of code of what will not change any more.
function finishCode(made) {
  for (const pre of made.querySelectorAll("pre")) {
    const code = pre.firstElementChild;
    const text = code.textContent;
    const language = pre.dataset.language ?? "";
    code.replaceChildren(coloured(text, language));
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
