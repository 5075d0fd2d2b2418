"use strict";
// Formulas between `$`, `$$`, `\(` and `\[`, as MathML. What is none, or may become too large, is the text that it is.
//
// A `$` begins one as in Pandoc: no white space stands behind it, none before that which ends it, and behind that no
// digit, so that prices are prices. Each pattern stops where the next formula could begin: none is looked through twice.

const FORMULA = 2000; // characters of one
const MARKUP = 100000; // characters that may come of it
const RUN = 1000; // characters of a text in which the next is looked for at once
const INLINE = [
  [/^\$\$((?:\\[^]|[^$\\])+)\$\$/, true],
  [/^\$((?:\\.|[^$\\\n])+)\$(?!\d)/, false],
  [/^\\\(((?:\\[^()]|[^\\\n])+)\\\)/, false],
  [/^\\\[((?:\\[^[\]]|[^\\])+)\\\]/, true],
];
const BLOCKS = [
  /^\$\$((?:\\[^\n]|[^$\\\n]|\n(?![ \t]*\n))+)\$\$[ \t]*(?:\n|$)/,
  /^\\\[((?:\\[^[\]\n]|[^\\\n]|\n(?![ \t]*\n))+)\\\][ \t]*(?:\n|$)/,
];
const MATH = ["math", "mfrac", "mi", "mn", "mo", "mover", "mpadded", "mphantom", "mroot", "mrow", "mspace", "msqrt", "mstyle",
  "msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover"];
const MATH_ATTRIBUTES = ["accent", "accentunder", "columnalign", "depth", "display", "displaystyle", "fence", "form", "height",
  "largeop", "linethickness", "lspace", "mathvariant", "maxsize", "minsize", "movablelimits", "rspace", "scriptlevel",
  "separator", "stretchy", "symmetric", "voffset", "width"];

// What makes very much of a few characters, before anybody can tell how much it is: definitions, which repeat what they
// are given, environments with a number of columns or an odd name, and rows, each of which is filled up to the longest.
const EXPLODES = /\\(?:[egx]?def|let|futurelet|(?:re)?newcommand|providecommand)(?![A-Za-z@])|\\begin(?!\s*\{(?:(?!align(?:ed)?at)[A-Za-z]+\*?\}|align(?:ed)?at\*?\}\s*\{\d\}))/;
const CELLS = 10000;

function explodes(text) {
  const [columns, rows] = [/[&@]/, /\\(?:\\|cr|newline)/].map((each) => text.split(each).length);
  return columns * rows > CELLS || EXPLODES.test(text);
}

const formulas = new Map(); // that were made last: the end of a text is made anew with each frame

// Returns MathML, or null.
function formula(text, isBlock) {
  const key = `${isBlock}${text}`;
  if (!formulas.has(key)) {
    let made = null;
    try {
      if (!explodes(text)) made = temml.renderToString(text, { displayMode: isBlock, throwOnError: true, maxExpand: 200, maxSize: [30, 30] })
        .replace(/ style="[^"]*"/g, ""); // which the policy of the page refuses
    } catch (error) {
      // it is none
    }
    if (formulas.size > 200) formulas.clear();
    formulas.set(key, made !== null && made.length <= MARKUP ? made : null);
  }
  return formulas.get(key);
}

// On lines of their own, whatever list or heading their lines look like.
const displayed = {
  name: "displayed",
  level: "block",
  start: (text) => text.slice(0, RUN).search(/\n(?:\$\$|\\\[)/) + 1 || undefined,
  tokenizer(text) {
    for (const pattern of BLOCKS) {
      const found = pattern.exec(text);
      const made = found && found[1].length <= FORMULA ? formula(found[1], true) : null;
      if (made !== null) return { type: "displayed", raw: found[0], made };
    }
  },
  renderer: ({ made }) => made,
};

const written = {
  name: "formula",
  level: "inline",
  start(text) {
    const at = text.slice(0, RUN).search(/\$|\\[([]/);
    return at < 0 && text.length > RUN ? RUN : at;
  },
  tokenizer(text) {
    for (const [pattern, isBlock] of INLINE) {
      const found = pattern.exec(text);
      if (!found || found[1].length > FORMULA || (!isBlock && /^\s|\s$/.test(found[1]) && text[0] === "$")) continue;
      const made = formula(found[1], isBlock);
      if (made !== null) return { type: "formula", raw: found[0], made };
    }
  },
  renderer: ({ made }) => made,
};
