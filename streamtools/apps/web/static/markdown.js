"use strict";
// Markdown that a model writes, while it writes it. HTML in it is text, links lead only to the web, and images are links
// but for those that are written out.
//
// Blocks that are complete are made once; only the last one is made anew, and not more often than it takes time. A block
// that is very long, or nested deeper than the renderer can follow, stays as the text that it is.

const BLOCK = 16384; // characters up to which one block is Markdown
const PART = 24; // blocks
const TAGS = ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
  "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"];
const ATTRIBUTES = ["start", "align", "data-language", "data-fits", "alt", ...MATH_ATTRIBUTES]; // that hold no address
const IMAGE = /^data:image\/(?:gif|jpeg|png|webp);base64,[\w+/=]+$/;

const LONGEST_IMAGE = 2 * 1024 * 1024; // characters of those that a block may have beside its text
const MOST_PIXELS = 32_000_000; // of all images of a page together: a few kilobytes unpack to as many gigabytes
const WRITTEN_OUT = /\]\(data:image\/(?:gif|jpeg|png|webp);base64,[\w+/=]+\)/g;

// How much a block has to be laid out: an image that is written out is one thing.
function weigh(text) {
  const bare = text.length > BLOCK ? text.replace(WRITTEN_OUT, "") : text;
  return text.length - bare.length > LONGEST_IMAGE ? text.length : bare.length;
}

// Up to where a text can be shown: not into an image that is written out, while its end has still to come.
function closed(text) {
  const at = text.lastIndexOf("](data:image/");
  const begin = at < 0 ? -1 : text.lastIndexOf("![", at);
  return begin >= 0 && text.length - at < LONGEST_IMAGE && /^\]\([\w:/+;,=]*$/.test(text.slice(at)) ? begin : text.length;
}

const escaped = (text) => text.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`);

// Whether a table would have more cells than characters: each row is filled up to the width of its head.
function isBloated(source) {
  if (!/^[^\n]*\|[^\n]*\n[ \t|:-]+(?:\n|$)/.test(source)) return false;
  const block = source.split(/\n[ \t]*\n/, 1)[0];
  const cells = source.slice(0, source.indexOf("\n")).split("|").length * block.split("\n").length;
  return cells > Math.max(256, block.length);
}

// An image is not drawn, and so not unpacked, before its head has told how large it is.
const fitting = new Set(); // addresses of those that are drawn
let pixels = 0; // of them
function measure({ target }) {
  if (target.nodeName !== "IMG" || !target.closest(".prose")) return;
  const more = fitting.has(target.src) ? 0 : target.naturalWidth * target.naturalHeight;
  if (pixels + more > MOST_PIXELS) return target.replaceWith(`${target.alt} (an image that is too large)`);
  pixels += more;
  fitting.add(target.src);
  target.dataset.fits = "";
}
for (const end of ["load", "error"]) document.addEventListener(end, measure, true);

const markdown = new marked.Marked({
  gfm: true,
  extensions: [displayed, written],
  tokenizer: { table: (source) => (isBloated(source) ? undefined : false) }, // false: as it does without us
  renderer: {
    html: (token) => escaped(token.raw ?? token.text),
    image: (token) => {
      const text = escaped(token.text || "image");
      if (IMAGE.test(token.href)) return `<img src="${token.href}" alt="${text}"${fitting.has(token.href) ? " data-fits" : ""}>`;
      return `<a href="${escaped(token.href)}">${text} (image)</a>`;
    },
    code: ({ text, lang }) => `<pre data-language="${escaped((lang ?? "").split(/\s/, 1)[0].slice(0, 30))}"><code>${escaped(text)}\n</code></pre>`,
    tablecell: ({ text }) => (text ? false : "<td></td>"), // a head that says nothing is none
    checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.nodeName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer");
    if (node.hasAttribute("href")) node.title = node.getAttribute("href");
  }
  if (node.nodeName === "IMG" && !IMAGE.test(node.getAttribute("src") ?? "")) node.remove();
  if (node.nodeName === "math" && node.closest("th")) { // or the head would have no name
    node.setAttribute("role", "math");
    node.setAttribute("aria-label", node.textContent);
  }
  if (node.nodeName === "PRE" || node.nodeName === "TABLE") node.setAttribute("tabindex", "0"); // to be scrolled by keys
});

function render(tokens) {
  return DOMPurify.sanitize(markdown.parser(tokens), {
    ALLOWED_TAGS: [...TAGS, "img", ...MATH],
    ALLOWED_ATTR: ["href", "src", ...ATTRIBUTES],
    ADD_URI_SAFE_ATTR: ATTRIBUTES, // they would be taken for some
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
    this.part = null; // that the next complete blocks are put into: the browser passes over those that are not in sight
    this.text = ""; // of the blocks that are not complete
    this.settled = 0; // up to where in it lines have been looked at
    this.plain = null;
    this.due = 0; // the first moment at which it may be made again
    this.cost = 0;
  }

  append(text) {
    if (this.plain) {
      this.plain.append(text);
      return;
    }
    this.text += text;
    if (this.text.length - this.settled > 4 * BLOCK) this.attempt(() => this.settle()); // much came between two frames
  }

  // Shows what has come; true if something is left for later.
  show(now, final = false) {
    if (this.plain || !this.text) return false;
    if (!final && now < this.due) return true;
    const begin = performance.now();
    this.attempt(() => {
      this.settle();
      const shown = final ? this.text : this.text.slice(0, closed(this.text));
      if (weigh(shown) > BLOCK) this.turnPlain();
      else {
        const made = render(markdown.lexer(shown));
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
      this.turnPlain(); // a stack has an end
    }
  }

  // Makes the blocks that no further line can change: all but the last of those whose lines are complete.
  settle() {
    const end = this.text.lastIndexOf("\n") + 1;
    if (!end || end === this.settled) return;
    this.settled = end;
    if (end > 8 * BLOCK) return; // an answer that comes at once
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
