"""Write the part of the Markdown corpus that no model wrote: documents in which nothing is a call.

    python tests/parsing/make_markdown.py tests/parsing/markdown

The short ones stand in `documents.toml`, one for each thing that comes near to a call. The long ones are put together
here from blocks, by a seed, so that neighbours meet that nobody thought of. The rules that keep calls out of them: a
complete call stands only inside a fence, a code span or a quote; a fence is longer than all that it holds; no sentence
begins with tildes; and what follows three hashes and a colon never begins with a brace and a quotation mark.
"""

from __future__ import annotations

import random
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

SHORT = Path(__file__).with_name("documents.toml")
LONG = 80
"""How many long documents there are. Each has its number as its seed."""

WORDS = (
    "a", "the", "of", "and", "to", "in", "it", "that", "for", "on", "with", "as", "was", "by", "from", "or", "which",
    "this", "have", "be", "are", "not", "at", "one", "all", "we", "there", "but", "more", "river", "stone", "light",
    "winter", "bread", "window", "garden", "letter", "music", "engine", "paper", "mountain", "harbour", "number",
    "question", "answer", "stream", "parser", "token", "model", "event", "marker", "heading", "fence", "street",
    "morning", "colour", "reason", "village", "bridge", "weather", "machine", "language",
)  # fmt: skip

NEAR = (
    "###", "###:", "### :", "###:{x}", "###:{}", "###: {y}", '####:{"a": 1}', 'log###:{"a": 1}', "##:", "#1", "C#",
    "~~~", "~~~tool_call", "~~~~", "~tilde~", "~~struck~~", "{", '{"name": "x"}', "}", "\\`", "\\\\", "\\#", "$a_1$",
    "&#35;", "👩\u200d🚀", "東京", "naïve", "שלום", "a|b", "<br>", "[^1]", "![i](i.png)", "**bold**", "_it_", "`code`",
    "[link](https://example.org/#:{x})", '`###:{"name": "x", "arguments": {}}`', '``###:{"name": "`x`"}``', "``` ` ```",
    "`~~~tool_call`",
)  # fmt: skip
"""What may stand in the middle of a sentence."""

CALLS = (
    '~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n~~~',
    '~~~tool_call\n[{"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "now"}]\n~~~',
    '###:{"toolName": "get_weather", "parameters": {"city": "São Paulo"}}',
    'Text, then ###: { "name": "add", "arguments": {"a": 1, "b": [2, {"c": "}"}]}} and text',
    '###:\n{\n  "name": "add",\n  "arguments": {}\n}',
)
"""Complete calls: for fences and quotes only."""

NEAR_LINES = (
    "###", "### ", "###:", "###: note", "###:note", '### : {"name": "x"}', "###:{x}", "###:{}", "####", "~~", "#:",
    '####:{"name": "x"}', 'print(f"### result###:{x}")', 'print("####ID########:{}".format(1))', "\\###", "=====",
    "########################", '### result###:{"name": "x", "arguments": {}}', "Text ~~~tool_call", "~ ~~~",
    "###:{'name': 'x'}", '[{"name": "x"}]',
)  # fmt: skip
"""Lines that stand alone."""

Make = Callable[[random.Random], str]


def sentence(rng: random.Random) -> str:
    """Return some words, with something near to a call among them."""
    words = rng.choices(WORDS, k=rng.randint(4, 14))
    if rng.random() < 0.4:
        words.insert(rng.randint(1, len(words)), rng.choice(NEAR))
    return " ".join(["The", *words]) + rng.choice(".!?:…")


def paragraph(rng: random.Random) -> str:
    """Return some sentences, on one line or on several."""
    return "".join(sentence(rng) + rng.choice("  \n") for _ in range(rng.randint(2, 7))).rstrip()


def heading(rng: random.Random) -> str:
    """Return a heading of any level, with or without closing hashes."""
    hashes = "#" * rng.randint(1, 6)
    title = " ".join(rng.choices(WORDS, k=rng.randint(1, 5))).capitalize()
    return f"{hashes} {title}{rng.choice(['', '', f' {hashes}', ' ###', ':', ' ###:'])}"


def near_line(rng: random.Random) -> str:
    """Return lines that are near to calls."""
    return "\n".join(rng.choices(NEAR_LINES, k=rng.randint(1, 3)))


def bullets(rng: random.Random) -> str:
    """Return a list that is nested up to three deep, of one kind of marker."""
    marker = rng.choice(["-", "*", "+", "1.", "2)", "- [ ]", "- [x]"])
    step = " " * (len(marker.split()[0]) + 1)
    return "\n".join(step * rng.randint(0, 2) + f"{marker} {sentence(rng)}" for _ in range(rng.randint(2, 7)))


def table(rng: random.Random) -> str:
    """Return a table of two to four columns."""
    columns = rng.randint(2, 4)
    rows = [rng.choices([*WORDS, "###:{x}", "`###:{}`", "~~~", "###"], k=columns) for _ in range(rng.randint(2, 6))]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + rng.choice(["---|", ":-:|", "--:|"]) * columns, *lines[1:]])


def fence(rng: random.Random) -> str:
    """Return a fence that holds calls, other fences and whatever else; sometimes in a list item."""
    inside = "\n".join(rng.choice([rng.choice(CALLS), near_line(rng), sentence(rng), "> quote"]) for _ in range(3))
    character = rng.choice("``~")
    length = rng.randint(4, 7)
    if rng.random() < 0.3:
        inside = f"```json\n{rng.choice(CALLS)}\n```\n{inside}"
    elif character == "`":
        length -= 1
    info = rng.choice(["", "", "json", " text", "python title=x", "tool_call"])
    lines = [
        character * length + info,
        *inside.split("\n"),
        character * (length + rng.randint(0, 2)) + rng.choice(["", "  "]),
    ]
    indent = " " * rng.choice([0, 0, 0, 2, 4])
    item = f"{rng.choice(['-', '*', '1.'])} {sentence(rng)}\n\n" if indent else ""
    return item + "\n".join(indent + line for line in lines)


def quote(rng: random.Random) -> str:
    """Return a quote, nested at will, that holds a call or an open fence."""
    inside = [sentence(rng), *rng.choice(CALLS).split("\n"), sentence(rng)]
    if rng.random() < 0.3:
        inside.insert(0, rng.choice(["```", "~~~~", "- item", "### Title"]))
    sign = rng.choice(["> ", ">", "> > ", ">> ", "- > "])
    follow = "  > " if sign == "- > " else sign
    return "\n".join((follow if number else sign) + line for number, line in enumerate(inside))


def other(rng: random.Random) -> str:
    """Return a block of some other kind."""
    return rng.choice(
        [
            "---",
            "$$\nx_{1} = \\{ a \\} ###:{x}\n$$",
            "<div class='###'>\n\n### In HTML\n\n</div>",
            f"[^1]: {sentence(rng)}",
            f"Title\n=====\n\n{sentence(rng)}\n\nSubtitle\n--------",
            f"    code {sentence(rng)}\n    ###:{{}}",
            f"Term\n: {sentence(rng)}",
            f"An unpaired ` protects the rest of its line: {CALLS[2]}",
        ]
    )


BLOCKS: tuple[Make, ...] = (
    paragraph,
    paragraph,
    heading,
    heading,
    near_line,
    bullets,
    table,
    fence,
    fence,
    quote,
    other,
)


def long_document(seed: int) -> str:
    """Return a document of some thousand characters; one in eight has CRLF, one in three no line end at its end."""
    rng = random.Random(seed)
    blocks = [heading(rng), paragraph(rng)]
    while sum(map(len, blocks)) < 2000:
        blocks.append(rng.choice(BLOCKS)(rng))
    text = rng.choice(["\n\n", "\n\n", "\n \n"]).join(blocks) + "\n"
    if rng.random() < 1 / 3:
        text = text.rstrip("\n")
    return text.replace("\n", "\r\n") if rng.random() < 1 / 8 else text


def documents() -> dict[str, bytes]:
    """Return all documents by the name of their file."""
    short = tomllib.loads(SHORT.read_text(encoding="utf-8"))
    return {f"case-{name}.md": str(text).encode() for name, text in short.items()} | {
        f"text-{seed:02}.md": long_document(seed).encode() for seed in range(1, LONG + 1)
    }


if __name__ == "__main__":
    for name, content in documents().items():
        Path(sys.argv[1], name).write_bytes(content)
