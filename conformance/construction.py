"""Cases by construction: texts are put together of pieces whose roles are known, and no parser is asked.

A call is written by its dialect. Where a cut-off one becomes a call is found by comparing what the dialect writes: what
two calls of different names have in common says nothing of a call yet, and what is still the beginning of another call
is not complete. So the expectations are wrong only where a writer is, and can find a reader wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from conformance.cases import Case, Cut, Outcome, WrittenCall
from streamtools.json_values import compact
from streamtools.parsing import DIALECTS, Dialect, dialects

TOOLS: Final[tuple[dict[str, Any], ...]] = tuple(
    {"name": name, "parameters": {"type": "object", "properties": {key: {"type": kind} for key, kind in keys.items()}}}
    for name, keys in {
        "get_weather": {"city": "string", "days": "integer"},
        "write_file": {"path": "string", "content": "string", "overwrite": "boolean"},
        "keep": {"data": "object", "items": "array", "ratio": "number", "count": "integer", "on": "boolean"},
    }.items()
)
"""The tools that every case declares."""

_ALL: Final[tuple[Cut, ...]] = ("tokens", "characters", "sevens", "whole", "everywhere")
_FEW: Final[tuple[Cut, ...]] = ("tokens", "characters", "whole")
_BEFORE, _BEHIND = "I will look it up.\n", "\nIt is 18 °C there. Anything else?"
_WEATHER: Final = ("get_weather", {"city": "Kraków", "days": 3})
_DATA: Final = {"a": {"b": [1, "}]"]}, "c": None}
_VALUES: Final = {"data": _DATA, "items": ["x", -2, True], "ratio": 0.25, "count": 12, "on": False}
_CODE: Final = 'def f(x):\n    if x < 3 and x["k"] == {"a": [1]}:\n\t\treturn "\\\\n" # it\'s <b>so</b> & done 🌍'
_MARKDOWN: Final = (
    "# Weather\n\n## Of *today* ###\n\n- one [link](http://example.org/?a=1&b=2), `code`, ~~struck~~\n- two: a < b\n"
    "\n1. first\n   ~~ x ~~\n\n| a | b |\n| --- | --- |\n| {x} | [y] |\n\n> quoted\n\n```json\n{\"a\": [1, 2]}\n```\n\n"
    "A line with \\` and one ` back-tick; C#, f(x), x[0], <br>, 100 %, 1 < 2, naïve, 東京, 👩‍👩‍👧.\r\nThe end."
)  # fmt: skip
_LONG: Final = "".join(f'    print({number}, "line {number}")\n' for number in range(120))
_TOKEN: Final = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")
_BEGUN: Final = re.compile(r"<[^<>\s]*$")
_WORD: Final = re.compile(r"\W+?(?=\w)|\w+|.")


class Piece(NamedTuple):
    """A section of a text and what it is; of a call also what is called."""

    role: Literal["text", "thought", "markup", "call"]
    text: str
    call: WrittenCall | None = None
    given: int = 0
    """How many characters of a call are there before its first argument."""
    whole: int = 0
    """How many characters of it may go on to another call; with more than these it may count, though it is cut off."""


_text, _markup = partial(Piece, "text"), partial(Piece, "markup")


class Rule(NamedTuple):
    """What is asked, and why the outcome is right."""

    name: str
    why: str
    pieces: Sequence[Piece]
    cuts: Sequence[Cut] = _ALL
    errors: tuple[str, ...] = ()


def cases(chosen: Sequence[str] = (), *, every_place: bool = True) -> Iterator[Case]:
    """Yield the cases of some dialects, or of all: the same ones each time.

    Each dialect has one answer cut off behind each character; without `every_place`, behind each seventh. Raises
    ValueError for a dialect that is unknown.
    """
    for dialect in dialects.choose_dialects(list(chosen) or list(DIALECTS)):
        counts: dict[str, int] = {}
        for rule in _rules(_Writer(dialect)):
            counts[rule.name] = counts.get(rule.name, 0) + 1
            yield _case(dialect, rule, str(counts[rule.name]))
        yield from _cut_off(_Writer(dialect), 1 if every_place else 7)


def _common_length(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _case(dialect: Dialect, rule: Rule, number: str, text: str = "", outcomes: Sequence[Outcome] = ()) -> Case:
    return Case(
        id=f"{dialect.id}/{rule.name}/{number}",
        dialect=dialect.id,
        rule=rule.name,
        why=rule.why,
        text=text or "".join(piece.text for piece in rule.pieces),
        tools=TOOLS,
        expected=tuple(outcomes) or (_outcome(rule.pieces, rule.errors),),
        cuts=tuple(rule.cuts),
    )


def _outcome(pieces: Sequence[Piece], errors: tuple[str, ...] = ()) -> Outcome:
    def sections(role: str) -> tuple[str, ...]:
        return tuple(piece.text for piece in pieces if piece.role == role and piece.text.strip())

    calls = tuple(piece.call for piece in pieces if piece.call is not None)
    return Outcome(sections("text"), calls, sections("thought"), errors)


class _Writer:
    """What one dialect writes."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        openers = list(dialect.openers)
        if dialect.openers_for is not None:
            openers += dialect.openers_for(tuple(tool["name"] for tool in TOOLS))
        one, other = (dialect.write_call(name, {"city": "x"}) for name in ("get_weather", "keep"))
        begun = {each.where for each in openers if re.match(each.marker.search_pattern(), one)}
        self.alone = begun == {"start"}
        """Whether a call is the whole answer."""
        self.results = any(each.kind == "result" for each in openers)
        """Whether a result, if the model writes one, is known as that."""
        self.opening = one[: _common_length(one, other)]
        """What every call begins with."""
        token = _TOKEN.match(self.opening)
        self.token = token[0] if token else ""
        """The tag that it begins with: complete, it is no text of a reader any more."""
        word = _WORD.match(self.opening)
        self.near = self.token or (word[0] if word else "")
        """What a beginning of is text, where it does not go on."""

    def call(self, name: str, arguments: dict[str, Any]) -> Piece:
        write = self.dialect.write_call
        text = write(name, arguments)
        others = dict.fromkeys(arguments) or {"_": None}, {**arguments, "overwrite": True}
        given, whole = (_common_length(text, write(name, other)) for other in others)
        return Piece("call", text, WrittenCall(name, arguments), given, whole)

    def around(self, *calls: Piece) -> list[Piece]:
        """Return text, calls with text between them, and text; of a dialect whose call is the answer, the first."""
        if self.alone:
            return [calls[0]]
        between = [piece for call in calls for piece in (_text("\nAnd on:\n"), call)]
        return [_text(_BEFORE), *between[1:], _text(_BEHIND)]


def _rules(writer: _Writer) -> Iterator[Rule]:
    weather = writer.call(*_WEATHER)
    yield Rule("one call", "A call is hidden and executed; the text around it is the reader's.", writer.around(weather))
    yield Rule("only a call", "An answer may be a call and nothing else.", [weather])
    yield Rule("no arguments", "A tool may need no arguments.", writer.around(writer.call("get_weather", {})))
    values = writer.call("keep", _VALUES)
    yield Rule("values", "Values keep the types that the schema of the tool names.", writer.around(values))
    for content in (_CODE, "", " a ", "null", "12", '{"a": 1}', "a, b=[1]) 'x'", "\\u00e9 \\\\ \\"):
        arguments = {"path": "a b.py", "content": content}
        if "\u2060" not in writer.call("write_file", arguments).text:  # nothing had to be kept from being structure
            why = "A string arrives character by character, whatever it looks like."
            yield Rule("strings", why, writer.around(writer.call("write_file", arguments)))
    long = writer.call("write_file", {"path": "long.py", "content": _LONG})
    yield Rule("a long string", "An argument may be a file.", writer.around(long), _FEW)
    yield from _markers_in_strings(writer)
    if not writer.alone:
        several = writer.around(weather, values, writer.call("get_weather", {"city": "Łódź"}))
        yield Rule("several calls", "Calls are executed in their order, and the text between them is shown.", several)
        twice = writer.around(weather, weather)
        yield Rule("the same call twice", "Two identical calls are two calls.", twice)
    yield from _prose(writer)
    yield from _code(writer, weather)
    yield from _thoughts(writer, weather)
    yield from _malformed(writer)
    if writer.results and not writer.alone:
        result = writer.dialect.write_result("get_weather", "It snows.")
        why = "A result that the model makes up is none, and the reader is not shown it."
        yield Rule("a made-up result", why, [_text(_BEFORE), _markup(result)])


def _markers_in_strings(writer: _Writer) -> Iterator[Rule]:
    why = "A tag inside a string of a call is a part of the string."
    one, other = (writer.call("get_weather", {"city": city}).text for city in "xy")
    closing = one[len(one) - _common_length(one[::-1], other[::-1]) :].strip('"}')
    for tag in (writer.opening, closing):
        arguments = {"path": "tags.md", "content": f"It is written as {tag} here."}
        call = writer.call("write_file", arguments)
        as_json = json.dumps(tag, ensure_ascii=False)[1:-1] in call.text and _embeds_json(writer)
        if tag.strip() and as_json:
            yield Rule("a marker in a string", why, writer.around(call))


def _embeds_json(writer: _Writer) -> bool:
    """Whether the arguments of a call stand in it as one JSON object."""
    return compact({"city": "x"}) in writer.call("get_weather", {"city": "x"}).text


def _prose(writer: _Writer) -> Iterator[Rule]:
    yield Rule("prose", "An answer without a call is shown, all of it.", [_text(_MARKDOWN)])
    why = "What begins like a marker and goes on otherwise is text."
    near = [writer.near[:size] for size in range(1, len(writer.near))]
    texts = [f"One writes {' , '.join(near)} , or nothing.", *(f"The end: {each}" for each in near[-1:])]
    for text in texts:
        yield Rule("nearly a marker", why, [_text(text)])
    if not writer.alone:
        around = [_text(f"One writes {' , '.join(near)} .\n"), writer.call(*_WEATHER), _text("\nSo.")]
        yield Rule("nearly a marker", why, around)


def _code(writer: _Writer, call: Piece) -> Iterator[Rule]:
    """Markdown: people ask models how a call is written."""
    if writer.dialect.in_code == "text":
        why = "In code and quotes a call is an example: it is shown, and nothing is executed."
        fence = "````" if "```" in call.text else "```"
        examples = [
            f"{fence}\n{call.text.rstrip()}\n{fence}",
            f"- So:\n  {fence}xml\n  {call.text.rstrip()}\n  {fence}",
        ]
        if "\n" not in call.text.strip() and "`" not in call.text:
            examples += [f"`{call.text.strip()}`", f"``{call.text.strip()}``", f"> {call.text.strip()}"]
        for example in examples:
            yield Rule("an example in code", why, [_text(f"It is written so:\n\n{example}\n\nThat is all.")])
    if not writer.alone:
        for before in ("```python\nx = 1\n```\n", "Say `x`.\n", "It costs 5` or so.\n", "> A quote.\n\n"):
            why = "Behind code that has ended, a back-tick without another, and a quote, a call is one."
            yield Rule("a call behind code", why, [_text(before), call, _text("\nDone.")])


def _thoughts(writer: _Writer, call: Piece) -> Iterator[Rule]:
    for opening, closing, ends in _thinking(writer.dialect):
        thought = [_markup(opening), Piece("thought", "They ask for\n the weather."), _markup(closing)]
        why = "Thoughts stand apart from the text, and their tags are nobody's."
        yield Rule("a thought", why, [*thought, _text("It is 18 °C.")])
        if not writer.alone:
            yield Rule("a thought and a call", why, [*thought, _text("\n" + _BEFORE), call])
        if not any(each in call.text for each in ends):
            why = "A call inside a thought is not made: the model thinks about it, and goes on thinking."
            rehearsed = Piece("thought", f"I could write\n{call.text.rstrip()}\nbut need not.")
            yield Rule("a call in a thought", why, [thought[0], rehearsed, thought[2], _text("It is 18 °C.")])


def _thinking(dialect: Dialect) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the tags around a thought, and what ends it: the usual ones, and those of the dialect that never vary."""
    yield "<think>", "</think>", ()
    for tag in dialect.tags:
        if tag.closings and tag.where == "anywhere" and len(tag.parts) == 1 and isinstance(tag.parts[0], str):
            yield tag.parts[0], tag.closings[0], (*tag.closings, *tag.before)


def _malformed(writer: _Writer) -> Iterator[Rule]:
    """Arguments that are no JSON, in dialects that write them as it."""
    if not _embeds_json(writer):
        return
    good = compact({"city": "x"})
    in_text = "invalid_arguments" if writer.dialect.id == "cwm_tool" else "invalid_json"  # its content may be text, too
    for bad, code in {
        '{"city":}': "invalid_json",
        '{"city":"x" "days":1}': "invalid_json",
        "{city}": in_text,
        '{"days":NaN}': "not_a_number",
        '{"city":"x","city":"y"}': "duplicate_key",
    }.items():
        text = writer.call("get_weather", {"city": "x"}).text.replace(good, bad)
        why = "What is no JSON, or has two meanings, is not guessed at; the text behind a blank line is the reader's."
        pieces = [_markup(text)] if writer.alone else [_text(_BEFORE), _markup(text), _text("\n\nI am sorry.")]
        yield Rule("malformed arguments", why, pieces, _FEW, (code,))


def _cut_off(writer: _Writer, step: int) -> Iterator[Case]:
    pieces = writer.around(writer.call("write_file", {"path": "a.py", "content": "x"}), writer.call(*_WEATHER))
    text = "".join(piece.text for piece in pieces)
    rule = Rule(
        "cut off", "What has come is shown; a call that may go on is not executed.", pieces, ("tokens", "characters")
    )
    for place in range(1, len(text), step):
        begun, at = list[Piece](), place
        for piece in pieces:
            if at < len(piece.text):
                break
            begun.append(piece)
            at -= len(piece.text)
        yield _case(writer.dialect, rule, str(place), text[:place], _cut_outcomes(writer, begun, piece, at))


def _cut_outcomes(writer: _Writer, begun: list[Piece], piece: Piece, at: int) -> list[Outcome]:
    """Return what is right where `piece`, behind those that have `begun`, is cut off behind `at` characters.

    A tag that is not complete may be shown: nobody knows what becomes of it. What has no tag may be shown up to its
    first argument.
    """
    if piece.role == "text" or not at:
        return [_outcome([*begun, _text(piece.text[:at])])]
    hidden, refused = _outcome(begun), _outcome(begun, ("truncated",))
    if at > piece.whole:
        tag = _BEGUN.search(piece.text, piece.whole, at)
        return [_outcome([*begun, piece]), refused, *([_outcome([*begun, piece, _text(tag[0])])] if tag else ())]
    if at > piece.given:
        return [refused]
    if writer.token and at > len(writer.opening):
        return [refused, hidden]
    tags = [each.end() for each in _TOKEN.finditer(piece.text[:at])] if writer.token else []
    return [refused, hidden, _outcome([*begun, _text(piece.text[tags[-1] if tags else 0 : at])])]
