"""The texts of the benchmarks. They resemble texts of models, and are generated from a seed.

Nothing is chosen to suit the parser. Prose has its quotes, digits, dashes and foreign letters, and line feeds between
paragraphs of a few sentences; Markdown has structure on every line; near-markers stand between all words; arguments are
a source file, as a tool that writes files gets it, in which every line ends in an escape. Sizes are in characters, and
met to within a sentence or a line.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

DELTA = 4
"""Characters of one delta: about what a token of a model is."""

WORDS = (
    "the", "of", "and", "a", "to", "in", "is", "it", "that", "was", "for", "on", "are", "with", "as", "his", "they",
    "be", "at", "one", "have", "this", "from", "or", "had", "by", "not", "but", "some", "what", "there", "we", "can",
    "out", "other", "were", "all", "your", "when", "up", "use", "how", "said", "each", "she", "which", "their", "time",
    "will", "way", "about", "many", "then", "them", "would", "write", "like", "these", "long", "make", "thing", "see",
    "river", "harbour", "window", "question", "answer", "stream", "engine", "mountain", "letter", "garden", "weather",
    "between", "important", "different", "necessary", "experience", "government", "understand", "temperature", "naïve",
    "café", "piñata", "well-known", "one-way", "don't", "it's", "we'll", "language", "reasonable", "approximately",
)  # fmt: skip

NEAR = (
    "###: x", "###:{a}", "###:{}", "### :", "###", "####", "##", "# 1", "C#", "###: note", "###:", "log###:{b}", "~~",
    "~~~", "~~~tool_caller", "~~gone~~", "###resul", "###result x", "###:\t{y", "#!", "~/notes", "<th", "<thin>", "[",
    "{", '{"name"', "[THIN", "</think", "###: {'name'", '####:{"name": 1}', "a | b", "\\#",
)  # fmt: skip
"""Texts that look like the beginning of a call or of reasoning, but are not. In some, a following space decides."""


def cut(text: str, size: int = DELTA) -> list[str]:
    """Return `text` in deltas of `size` characters."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def cut_unevenly(text: str, seed: int = 1) -> list[str]:
    """Return `text` in deltas of one to seven characters, four on average, like tokens."""
    rng = random.Random(seed)
    deltas, at = [], 0
    while at < len(text):
        size = rng.randint(1, 7)
        deltas.append(text[at : at + size])
        at += size
    return deltas


def prose(size: int, seed: int = 1) -> str:
    """Return paragraphs of two to five sentences."""
    return _fill(size, seed, "\n\n", lambda rng: " ".join(sentence(rng) for _ in range(rng.randint(2, 5))))


def markdown(size: int, seed: int = 2) -> str:
    """Return Markdown in which every line is a heading, a list item, a quote, a row of a table or a line of code."""
    return _fill(size, seed, "\n", lambda rng: rng.choice(_BLOCKS)(rng))


def headings(size: int, seed: int = 5) -> str:
    """Return lines that are all headings."""
    return _fill(size, seed, "\n", _heading)


def tables(size: int, seed: int = 6) -> str:
    """Return rows of tables."""
    return _fill(size, seed, "\n", _table)


def code_spans(size: int, seed: int = 7) -> str:
    """Return lines in which every third word is a code span."""

    def line(rng: random.Random) -> str:
        words = rng.choices(WORDS, k=rng.randint(10, 40))
        return " ".join(f"`{word}`" if rng.random() < 0.33 else word for word in words)

    return _fill(size, seed, "\n", line)


def short_paragraphs(size: int, seed: int = 8) -> str:
    """Return paragraphs of about 100 characters."""
    return _fill(size, seed, "\n\n", lambda rng: sentence(rng)[:100])


def near_markers(size: int, seed: int = 3) -> str:
    """Return lines in which nearly every second word looks like the beginning of a call. None is a call."""

    def line(rng: random.Random) -> str:
        words = [rng.choice(WORDS)]  # a line that began with tildes would be a fence, and what it holds easy
        for _ in range(rng.randint(4, 10)):
            words += [rng.choice(NEAR), rng.choice(WORDS)]
        start = rng.choice(["", "", "### ", "###: ", "#### ", "- ", "~~x~~ "])
        return start + " ".join(words)

    return _fill(size, seed, "\n", line)


def sentence(rng: random.Random) -> str:
    """Return one sentence."""
    words = rng.choices(WORDS, k=rng.randint(6, 18))
    words[0] = words[0].capitalize()
    for at in range(1, len(words) - 1):
        chance = rng.random()
        if chance < 0.09:
            words[at] += ","
        elif chance < 0.11:
            words[at] += rng.choice([" –", ";", ":", " -"])
        elif chance < 0.13:
            words[at] = f'"{words[at]}"'
        elif chance < 0.14:
            words[at] = f"({words[at]})"
        elif chance < 0.17:
            words[at] = rng.choice(["7", "42", "1990s", "3.5", "12,000", "2026", "50%"])
    return " ".join(words) + rng.choices(".?!…", (90, 6, 3, 1))[0]


def arguments(size: int, seed: int = 4) -> dict[str, Any]:
    """Return the arguments of a tool that writes files. `size` is the length of their JSON."""
    rng = random.Random(seed)
    lines: list[str] = []
    left = size - 60
    for line in _source_lines(rng):
        left -= len(json.dumps(line, ensure_ascii=False))
        if left < 0:
            break
        lines.append(line)
    return {"path": f"src/module_{seed}.py", "content": "\n".join(lines), "overwrite": True}


def small_arguments(rng: random.Random) -> dict[str, Any]:
    """Return the arguments of a small tool."""
    return {"city": rng.choice(["Paris", "São Paulo", "Kraków", "New York"]), "days": rng.randint(1, 9)}


def _source_lines(rng: random.Random) -> Iterator[str]:
    """Yield the lines of a program endlessly. As in real programs, one delta in six of its JSON holds an escape."""
    while True:
        name, other, key = (rng.choice(WORDS[60:78]) for _ in range(3))
        yield f"def {name}_{rng.randint(1, 999)}({other}: str, limit: int = {rng.randint(1, 99)}) -> dict[str, int]:"
        yield f'    """{sentence(rng)}"""'
        if rng.random() < 0.2:
            yield rf'    pattern = re.compile(r"^\s*({name}|{other})=\"([^\"]*)\"\\?$")'
        yield f"    {name} = [1, 2, {rng.randint(3, 99)}]"
        yield f'    counts = {{"{key}": 0, "{other}": {{}}}}'
        yield f"    for line in {other}.splitlines():"
        yield "        # " + sentence(rng)
        if rng.random() < 0.3:
            yield f"\t\tif not line.endswith('\\n'): raise ValueError(f\"{key}: {{line!r}}\")"
        yield f"        if len(line) > limit and {name}[-1] != {rng.randint(2, 9)}:"
        yield f"            counts['{key}'] += len(line) // {rng.randint(2, 9)}"
        yield "            continue"
        yield f"        {other} = {other}.strip().lower()"
        yield "    return counts"
        yield ""


def _fill(size: int, seed: int, between: str, make: Callable[[random.Random], str]) -> str:
    rng = random.Random(seed)
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(make(rng))
        length += len(parts[-1]) + len(between)
    return between.join(parts)


# Blocks of Markdown.


def _heading(rng: random.Random) -> str:
    return "#" * rng.randint(1, 6) + " " + _phrase(rng)


def _bullets(rng: random.Random) -> str:
    mark = rng.choice(["-", "*", "+"])
    lines = [f"{'  ' * rng.randint(0, 2)}{mark} {_phrase(rng)}" for _ in range(rng.randint(2, 5))]
    return "\n".join(lines)


def _numbers(rng: random.Random) -> str:
    return "\n".join(f"{number}. **{rng.choice(WORDS)}**: {_phrase(rng)}" for number in range(1, rng.randint(3, 6)))


def _quote(rng: random.Random) -> str:
    return "\n".join(f"> {_phrase(rng)}" for _ in range(rng.randint(1, 3)))


def _table(rng: random.Random) -> str:
    rows = [" | ".join(rng.choices(WORDS, k=4)) for _ in range(rng.randint(2, 5))]
    return "\n".join([f"| {rows[0]} |", "|---|---|:-:|--:|", *(f"| {row} |" for row in rows[1:])])


def _fence(rng: random.Random) -> str:
    lines = _source_lines(rng)
    mark = rng.choice(["```", "```", "~~~~"])
    return "\n".join([mark + rng.choice(["python", "py", ""]), *(next(lines) for _ in range(rng.randint(2, 7))), mark])


def _code_span(rng: random.Random) -> str:
    return f"`{rng.choice(WORDS)}({rng.choice(WORDS)})` {_phrase(rng)} ``{rng.choice(WORDS)} ` x`` and `{{}}`"


def _phrase(rng: random.Random) -> str:
    words = rng.choices(WORDS, k=rng.randint(3, 10))
    if rng.random() < 0.3:
        words[1] = rng.choice([f"`{words[1]}`", f"**{words[1]}**", f"[{words[1]}](https://example.org/{words[1]})"])
    return " ".join(words)


_BLOCKS = (_heading, _bullets, _numbers, _quote, _table, _fence, _code_span)
