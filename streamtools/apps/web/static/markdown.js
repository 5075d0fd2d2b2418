"use strict";
// Renders Markdown while the model writes it. HTML is shown as text, links lead only to the web, images become links.
//
// A complete block is rendered once. Only the last block is rendered again, and at most for an eighth of the time. A
// block that is very long, or nested too deeply for the renderer, stays plain text.

const BLOCK = 16384; // characters up to which one block is Markdown
const PART = 24; // blocks
const TAGS = ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
  "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"];
const ATTRIBUTES = ["start", "align", "data-language"]; // none of them holds an address

const escaped = (text) => text.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`);

// Whether a table would have more cells than characters: the renderer fills each row up to the width of the head.
function isBloated(source) {
  if (!/^[^\n]*\|[^\n]*\n[ \t|:-]+(?:\n|$)/.test(source)) return false;
  const block = source.split(/\n[ \t]*\n/, 1)[0];
  const cells = source.slice(0, source.indexOf("\n")).split("|").length * block.split("\n").length;
  return cells > Math.max(256, block.length);
}

const markdown = new marked.Marked({
  gfm: true,
  tokenizer: { table: (source) => (isBloated(source) ? undefined : false) }, // false: use the default tokenizer
  renderer: {
    html: (token) => escaped(token.raw ?? token.text),
    image: (token) => `<a href="${escaped(token.href)}">${escaped(token.text || "image")} (image)</a>`,
    code: ({ text, lang }) => `<pre data-language="${escaped((lang ?? "").split(/\s/, 1)[0].slice(0, 30))}"><code>${escaped(text)}\n</code></pre>`,
    tablecell: ({ text }) => (text ? false : "<td></td>"), // an empty cell must not be a header cell
    checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
    if (node.hasAttribute("href")) node.title = node.getAttribute("href");
  }
  if (node.nodeName === "PRE" || node.nodeName === "TABLE") node.setAttribute("tabindex", "0"); // so that keys can scroll it
});

function render(tokens) {
  return DOMPurify.sanitize(markdown.parser(tokens), {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", ...ATTRIBUTES],
    ADD_URI_SAFE_ATTR: ATTRIBUTES, // DOMPurify would check them as addresses
    ALLOWED_URI_REGEXP: /^(?:https?:\/\/|mailto:)/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}

class MarkdownText {
  constructor() {
    this.node = element("div", { class: "prose" });
    this.tail = element("div", { class: "tail" });
    this.node.append(this.tail);
    this.part = null; // the container of finished blocks; the browser skips layout of containers that are out of sight
    this.text = ""; // the blocks that are not complete
    this.settled = 0; // the end of the lines of `text` that have been checked for complete blocks
    this.plain = null;
    this.due = 0; // when the last block may be rendered again
    this.cost = 0;
  }

  append(text) {
    if (this.plain) {
      this.plain.append(text);
      return;
    }
    this.text += text;
    if (this.text.length - this.settled > 4 * BLOCK) this.attempt(() => this.settle()); // much text arrived between two frames
  }

  // Renders the text. Returns true if a later frame must render the rest.
  show(now, final = false) {
    if (this.plain || !this.text) return false;
    if (!final && now < this.due) return true;
    const begin = performance.now();
    this.attempt(() => {
      this.settle();
      if (this.text.length > BLOCK) this.turnPlain();
      else {
        const made = render(markdown.lexer(this.text));
        this.tail.replaceChildren(final ? finishCode(made) : made);
      }
    });
    this.cost = performance.now() - begin;
    this.due = now + 8 * this.cost;
    return false;
  }

  attempt(make) {
    try {
      make();
    } catch (error) {
      this.turnPlain(); // the renderer ran out of stack
    }
  }

  // Renders the complete blocks: all blocks of complete lines, except the last one, which more lines can change.
  settle() {
    const end = this.text.lastIndexOf("\n") + 1;
    if (!end || end === this.settled) return;
    this.settled = end;
    if (end > 8 * BLOCK) return; // too long for one frame
    const tokens = markdown.lexer(this.text.slice(0, end));
    let last = tokens.length - 1;
    while (last > 0 && tokens[last].type === "space") last--;
    const done = tokens.slice(0, last);
    const length = done.reduce((sum, token) => sum + token.raw.length, 0);
    if (!length || !this.text.startsWith(done.map((token) => token.raw).join(""))) return;
    done.links = tokens.links;
    for (const node of [...finishCode(render(done)).childNodes]) {
      if (!this.part || (node instanceof Element && this.part.childElementCount >= PART)) this.tail.before(this.part = element("div", { class: "part" }));
      this.part.append(node);
    }
    this.text = this.text.slice(length);
    this.settled = 0;
  }

  turnPlain() {
    const pre = element("div", { class: "plain" });
    this.tail.replaceChildren(pre);
    this.plain = new LongText(pre);
    this.plain.append(this.text);
    this.text = "";
  }
}
