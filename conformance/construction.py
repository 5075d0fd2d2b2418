"""Makes the cases: it builds texts from sections with known roles, and asks no parser.

The dialect writes the calls. Whether a cut-off text is a call follows from a comparison of two calls that the dialect
writes. The common beginning of calls with different names does not identify a call. The common beginning of calls with
different arguments is not complete. So an expectation is wrong only if a writer is wrong, and the suite can find faults
in our own parser.
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

_ALL_CUTS: Final[tuple[Cut, ...]] = ("tokens", "characters", "sevens", "whole", "everywhere")
_FEW_CUTS: Final[tuple[Cut, ...]] = ("tokens", "characters", "whole")
_BEFORE, _AFTER = "I will look it up.\n", "\nIt is 18 °C there. Anything else?"
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
_TAG: Final = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")
_CUT_TAG: Final = re.compile(r"<[^<>\s]*$")
_WORD: Final = re.compile(r"\W+?(?=\w)|\w+|.")


class Section(NamedTuple):
    """A section of a text and its role."""

    role: Literal["text", "reasoning", "markup", "call"]
    text: str
    call: WrittenCall | None = None
    before_arguments: int = 0
    """The number of characters of a call before its first argument."""
    ambiguous: int = 0
    """The number of characters that another call begins with too. A call cut off after more may count."""


_text, _markup = partial(Section, "text"), partial(Section, "markup")


class RuleCase(NamedTuple):
    """A case before its text is put together."""

    rule: str
    why: str
    sections: Sequence[Section]
    cuts: Sequence[Cut] = _ALL_CUTS
    errors: tuple[str, ...] = ()


def cases(chosen: Sequence[str] = (), *, every_place: bool = True) -> Iterator[Case]:
    """Yield the cases of the `chosen` dialects, or of all. They are the same each time.

    One answer of each dialect is cut off after each character, or without `every_place` after each seventh. Raises
    ValueError for an unknown dialect.
    """
    for dialect in dialects.choose_dialects(list(chosen) or list(DIALECTS)):
        counts: dict[str, int] = {}
        for case in _rule_cases(_Writer(dialect)):
            counts[case.rule] = counts.get(case.rule, 0) + 1
            yield _finish(dialect, case, str(counts[case.rule]))
        yield from _cut_off(_Writer(dialect), 1 if every_place else 7)


def _finish(dialect: Dialect, case: RuleCase, number: str, text: str = "", outcomes: Sequence[Outcome] = ()) -> Case:
    return Case(
        id=f"{dialect.id}/{case.rule}/{number}",
        dialect=dialect.id,
        rule=case.rule,
        why=case.why,
        text=text or "".join(section.text for section in case.sections),
        tools=TOOLS,
        expected=tuple(outcomes) or (_outcome(case.sections, case.errors),),
        cuts=tuple(case.cuts),
    )


def _outcome(sections: Sequence[Section], errors: tuple[str, ...] = ()) -> Outcome:
    def texts(role: str) -> tuple[str, ...]:
        return tuple(section.text for section in sections if section.role == role and section.text.strip())

    calls = tuple(section.call for section in sections if section.call is not None)
    return Outcome(texts("text"), calls, texts("reasoning"), errors)


def _common_length(one: str, other: str) -> int:
    """Return the length of the beginning that two texts share."""
    differing = (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1])
    return next(differing, min(len(one), len(other)))


class _Writer:
    """Writes the calls of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        openers = list(dialect.openers)
        if dialect.openers_for is not None:
            openers += dialect.openers_for(tuple(tool["name"] for tool in TOOLS))
        one, other = (dialect.write_call(name, {"city": "x"}) for name in ("get_weather", "keep"))
        places = {opener.where for opener in openers if re.match(opener.marker.search_pattern(), one)}
        self.alone = places == {"start"}
        """True if a call must be the whole answer."""
        self.results = any(opener.kind == "result" for opener in openers)
        """True if the parser recognizes a result that the model writes."""
        self.opening = one[: _common_length(one, other)]
        """The text with which every call begins."""
        tag = _TAG.match(self.opening)
        self.tag = tag[0] if tag else ""
        """The first tag of a call. Once it is complete, it is never visible text."""
        word = _WORD.match(self.opening)
        self.first = self.tag or (word[0] if word else "")
        """The first tag or word of a call. Any beginning of it is text, unless the rest follows."""

    def call(self, name: str, arguments: dict[str, Any]) -> Section:
        write = self.dialect.write_call
        text = write(name, arguments)
        others = dict.fromkeys(arguments) or {"_": None}, {**arguments, "overwrite": True}
        before_arguments, ambiguous = (_common_length(text, write(name, other)) for other in others)
        return Section("call", text, WrittenCall(name, arguments), before_arguments, ambiguous)

    def around(self, *calls: Section) -> list[Section]:
        """Return text, the calls with text between them, and text. If a call must stand alone, return the first one."""
        if self.alone:
            return [calls[0]]
        between = [section for call in calls for section in (_text("\nAnd on:\n"), call)]
        return [_text(_BEFORE), *between[1:], _text(_AFTER)]


def _rule_cases(writer: _Writer) -> Iterator[RuleCase]:
    weather = writer.call(*_WEATHER)
    why = "A call is hidden and executed; the text around it is shown."
    yield RuleCase("one call", why, writer.around(weather))
    yield RuleCase("only a call", "An answer may be only a call.", [weather])
    yield RuleCase("no arguments", "A tool may need no arguments.", writer.around(writer.call("get_weather", {})))
    values = writer.call("keep", _VALUES)
    yield RuleCase("values", "Values have the types in the schema of the tool.", writer.around(values))
    for content in (_CODE, "", " a ", "null", "12", '{"a": 1}', "a, b=[1]) 'x'", "\\u00e9 \\\\ \\"):
        arguments = {"path": "a b.py", "content": content}
        if "\u2060" not in writer.call("write_file", arguments).text:  # the writer did not have to neutralize it
            why = "A string arrives exactly as written, whatever it looks like."
            yield RuleCase("strings", why, writer.around(writer.call("write_file", arguments)))
    long = writer.call("write_file", {"path": "long.py", "content": _LONG})
    yield RuleCase("a long string", "An argument may be a file.", writer.around(long), _FEW_CUTS)
    yield from _markers_in_strings(writer)
    if not writer.alone:
        several = writer.around(weather, values, writer.call("get_weather", {"city": "Łódź"}))
        why = "Calls are executed in order, and the text between them is shown."
        yield RuleCase("several calls", why, several)
        yield RuleCase("the same call twice", "Two identical calls are two calls.", writer.around(weather, weather))
    yield from _prose(writer)
    yield from _code(writer, weather)
    yield from _reasoning(writer, weather)
    yield from _malformed(writer)
    if writer.results and not writer.alone:
        result = writer.dialect.write_result("get_weather", "It snows.")
        why = "A result that the model makes up is not a result, and it is hidden."
        yield RuleCase("a made-up result", why, [_text(_BEFORE), _markup(result)])


def _markers_in_strings(writer: _Writer) -> Iterator[RuleCase]:
    why = "A tag inside a string of a call is part of the string."
    one, other = (writer.call("get_weather", {"city": city}).text for city in "xy")
    closing = one[len(one) - _common_length(one[::-1], other[::-1]) :].strip('"}')
    for tag in (writer.opening, closing):
        arguments = {"path": "tags.md", "content": f"It is written as {tag} here."}
        call = writer.call("write_file", arguments)
        as_json = json.dumps(tag, ensure_ascii=False)[1:-1] in call.text and _embeds_json(writer)
        if tag.strip() and as_json:
            yield RuleCase("a marker in a string", why, writer.around(call))


def _embeds_json(writer: _Writer) -> bool:
    """Return True if a call contains its arguments as one JSON object."""
    return compact({"city": "x"}) in writer.call("get_weather", {"city": "x"}).text


def _prose(writer: _Writer) -> Iterator[RuleCase]:
    yield RuleCase("prose", "An answer without a call is shown completely.", [_text(_MARKDOWN)])
    why = "Text that begins like a marker and then differs is text."
    parts = [writer.first[:size] for size in range(1, len(writer.first))]
    for text in [f"One writes {' , '.join(parts)} , or nothing.", *(f"The end: {part}" for part in parts[-1:])]:
        yield RuleCase("nearly a marker", why, [_text(text)])
    if not writer.alone:
        around = [_text(f"One writes {' , '.join(parts)} .\n"), writer.call(*_WEATHER), _text("\nSo.")]
        yield RuleCase("nearly a marker", why, around)


def _code(writer: _Writer, call: Section) -> Iterator[RuleCase]:
    """Yield calls in Markdown code: people ask models how to write a call."""
    if writer.dialect.in_code == "text":
        why = "A call in code or in a quote is an example: it is shown and not executed."
        fence = "````" if "```" in call.text else "```"
        examples = [
            f"{fence}\n{call.text.rstrip()}\n{fence}",
            f"- So:\n  {fence}xml\n  {call.text.rstrip()}\n  {fence}",
        ]
        if "\n" not in call.text.strip() and "`" not in call.text:
            examples += [f"`{call.text.strip()}`", f"``{call.text.strip()}``", f"> {call.text.strip()}"]
        for example in examples:
            yield RuleCase("an example in code", why, [_text(f"It is written so:\n\n{example}\n\nThat is all.")])
    if not writer.alone:
        for before in ("```python\nx = 1\n```\n", "Say `x`.\n", "It costs 5` or so.\n", "> A quote.\n\n"):
            why = "A call counts after code that has ended, after an unpaired back-tick, and after a quote."
            yield RuleCase("a call after code", why, [_text(before), call, _text("\nDone.")])


def _reasoning(writer: _Writer, call: Section) -> Iterator[RuleCase]:
    for opening, closing, ends in _reasoning_tags(writer.dialect):
        tags = _markup(opening), _markup(closing)
        sections = [tags[0], Section("reasoning", "They ask for\n the weather."), tags[1]]
        why = "Reasoning is separate from the text, and its tags are hidden."
        yield RuleCase("reasoning", why, [*sections, _text("It is 18 °C.")])
        if not writer.alone:
            yield RuleCase("reasoning and a call", why, [*sections, _text("\n" + _BEFORE), call])
        if not any(end in call.text for end in ends):
            why = "A call inside reasoning is not executed: the model thinks about it and continues."
            rehearsed = Section("reasoning", f"I could write\n{call.text.rstrip()}\nbut need not.")
            yield RuleCase("a call in reasoning", why, [tags[0], rehearsed, tags[1], _text("It is 18 °C.")])


def _reasoning_tags(dialect: Dialect) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield tags around reasoning and all texts that end it: the common tags, and the fixed ones of the dialect."""
    yield "<think>", "</think>", ()
    for tag in dialect.tags:
        if tag.closings and tag.where == "anywhere" and len(tag.parts) == 1 and isinstance(tag.parts[0], str):
            yield tag.parts[0], tag.closings[0], (*tag.closings, *tag.before)


def _malformed(writer: _Writer) -> Iterator[RuleCase]:
    """Yield calls with malformed JSON, for dialects that write arguments as JSON."""
    if not _embeds_json(writer):
        return
    good = compact({"city": "x"})
    no_object = "invalid_arguments" if writer.dialect.id == "cwm_tool" else "invalid_json"  # it allows text
    for bad, code in {
        '{"city":}': "invalid_json",
        '{"city":"x" "days":1}': "invalid_json",
        "{city}": no_object,
        '{"days":NaN}': "not_a_number",
        '{"city":"x","city":"y"}': "duplicate_key",
    }.items():
        text = writer.call("get_weather", {"city": "x"}).text.replace(good, bad)
        why = "Malformed or ambiguous JSON is not guessed at; the text after a blank line is shown."
        sections = [_markup(text)] if writer.alone else [_text(_BEFORE), _markup(text), _text("\n\nI am sorry.")]
        yield RuleCase("malformed arguments", why, sections, _FEW_CUTS, (code,))


def _cut_off(writer: _Writer, step: int) -> Iterator[Case]:
    sections = writer.around(writer.call("write_file", {"path": "a.py", "content": "x"}), writer.call(*_WEATHER))
    text = "".join(section.text for section in sections)
    why = "The text is shown up to the cut; a call that more text could change is not executed."
    case = RuleCase("cut off", why, sections, ("tokens", "characters"))
    for place in range(1, len(text), step):
        complete, at = list[Section](), place
        for section in sections:
            if at < len(section.text):
                break
            complete.append(section)
            at -= len(section.text)
        yield _finish(writer.dialect, case, str(place), text[:place], _cut_outcomes(writer, complete, section, at))


def _cut_outcomes(writer: _Writer, complete: list[Section], section: Section, at: int) -> list[Outcome]:
    """Return the right outcomes if `section` is cut off after `at` characters. The sections before it are `complete`.

    An incomplete tag may be shown, because more text could make it anything. A call without a tag may be shown up to
    its first argument.
    """
    if section.role == "text" or not at:
        return [_outcome([*complete, _text(section.text[:at])])]
    hidden, refused = _outcome(complete), _outcome(complete, ("truncated",))
    if at > section.ambiguous:
        tag = _CUT_TAG.search(section.text, section.ambiguous, at)
        shown_tag = [_outcome([*complete, section, _text(tag[0])])] if tag else []
        return [_outcome([*complete, section]), refused, *shown_tag]
    if at > section.before_arguments:
        return [refused]
    if writer.tag and at > len(writer.opening):
        return [refused, hidden]
    tags = [found.end() for found in _TAG.finditer(section.text[:at])] if writer.tag else []
    return [refused, hidden, _outcome([*complete, _text(section.text[tags[-1] if tags else 0 : at])])]
