"""A case as data, and how a parser's report on it is judged.

A case is a text of a model in one dialect, the right outcomes, and the reason. One case is one line of JSON. Formats
leave some things open, like whether a half-written tag at the end of a stream is shown. So a case may have several
right outcomes. `schema` returns the JSON schema of a line and explains each field.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from streamtools.calls import one_number

_Text = Annotated[
    tuple[str, ...],
    Meta(description="Sections in order, each exactly as written here; white space around them is not judged."),
]
Cut = Literal["tokens", "characters", "sevens", "whole", "everywhere"]
"""How a text is cut into deltas.

`tokens` keeps special tokens and words whole, as an inference server does. `characters` and `sevens` cut after each
character and each seventh. `whole` does not cut. `everywhere` cuts in two, at each place in turn.
"""


class WrittenCall(msgspec.Struct, frozen=True):
    """A call in a text."""

    name: str
    arguments: dict[str, Any]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a parser should report for a text."""

    text: Annotated[_Text, Meta(description="The visible text.")]
    calls: Annotated[tuple[WrittenCall, ...], Meta(description="The calls that may be executed, in order.")] = ()
    reasoning: Annotated[_Text, Meta(description="The reasoning.")] = ()
    errors: Annotated[
        tuple[str, ...], Meta(description="The error codes of streamtools for sections that are no calls.")
    ] = ()


class Case(msgspec.Struct, frozen=True):
    """A text and the right outcomes."""

    id: Annotated[str, Meta(description="The dialect, the rule, and the number of the case.")]
    dialect: Annotated[str, Meta(description="The dialect of the calls: an id of docs/dialects.md.")]
    rule: str
    why: Annotated[str, Meta(description="Why these outcomes are right.")]
    text: Annotated[str, Meta(description="The complete answer of the model.")]
    tools: Annotated[tuple[dict[str, Any], ...], Meta(description="The declared tools, each with a JSON schema.")]
    expected: Annotated[tuple[Outcome, ...], Meta(min_length=1, description="The right outcomes: any of them.")]
    cuts: Annotated[tuple[Cut, ...], Meta(description="How to cut the text; `everywhere` cuts in two, at each place.")]


def schema() -> dict[str, Any]:
    """Return the JSON schema of a case."""
    return msgspec.json.schema(Case)


def to_line(case: Case) -> str:
    """Return a case as a line of JSON without a line end."""
    return msgspec.json.encode(case).decode()


def read_lines(lines: Iterable[str]) -> Iterator[Case]:
    """Yield the cases in lines of JSON. Raises msgspec.ValidationError for a line that does not match the schema."""
    for line in lines:
        if line.strip():
            yield msgspec.json.decode(line, type=Case)


_TOKENS = re.compile(
    r"<[|/\uff5c]?[^<>\s]{1,60}+>|\[/?[A-Z_]{3,20}+\]|\]<\]\w{1,20}+\[>\[|[ ]?\w{1,6}|\s+|[^\w\s][^\w\s<\[\]]?"
)


def deltas(text: str, cut: Cut) -> Iterator[list[str]]:
    """Yield the ways to cut a text, each as a list of deltas. Only `everywhere` yields several."""
    match cut:
        case "tokens":
            yield _TOKENS.findall(text)
        case "characters":
            yield list(text)
        case "sevens":
            yield [text[at : at + 7] for at in range(0, len(text), 7)]
        case "whole":
            yield [text]
        case "everywhere":
            yield from ([text[:at], text[at:]] for at in range(1, len(text)))


# The judgement. Only the parts that a parser reports are judged: one that reports only calls is not judged on text. If
# several outcomes are right, the one with the fewest faults counts.

FAULTS: Final = {
    "leak": "the visible text contains characters of a call, a tag or reasoning",
    "lost text": "visible text is missing",
    "lost call": "a complete call is missing",
    "false call": "something would be executed that is cut off, malformed, or an example in code",
    "wrong arguments": "a call would be executed with other arguments than the model wrote",
    "white space": "white space inside a section of text differs",
    "reasoning": "reasoning is not reported as reasoning",
    "code": "an error code is missing or wrong",
    "raised": "the parser raised an exception or did not answer",
}
"""The faults, the worst for a reader first."""


@dataclass(frozen=True)
class Reported:
    """What a parser reported for a text. None means that it does not report this part for any text."""

    text: str | None = None
    calls: Sequence[tuple[str, Any]] = ()
    """Names and arguments. The arguments are an object, or its JSON text."""
    reasoning: str | None = None
    errors: Sequence[str] | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Reported:
        """Read the answer of an adapter, which has any of `text`, `reasoning`, `calls` and `errors`.

        Raises ValueError for an answer in another form.
        """
        try:
            calls = tuple((str(call["name"]), call.get("arguments")) for call in answer.get("calls") or ())
            errors = answer.get("errors")
            return cls(answer.get("text"), calls, answer.get("reasoning"), None if errors is None else list(errors))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"malformed answer of the parser: {answer!r} ({type(error).__name__}: {error})") from error


def judge(case: Case, reported: Reported) -> Counter[str]:
    """Return the faults of a report: names of `FAULTS`, each with the number of characters or calls."""
    return min(
        (_faults(outcome, reported) for outcome in case.expected), key=lambda faults: (len(faults), faults.total())
    )


def _faults(outcome: Outcome, reported: Reported) -> Counter[str]:
    found: Counter[str] = Counter()
    if reported.text is not None:
        found.update(_text_faults(outcome.text, reported.text))
    found.update(_call_faults(outcome.calls, reported.calls))
    if reported.reasoning is not None:
        found["reasoning"] = sum(_text_faults(outcome.reasoning, reported.reasoning).values())
    if reported.errors is not None:
        expected, got = Counter(outcome.errors), Counter(reported.errors)
        found["code"] = max((expected - got).total(), (got - expected).total())
    return +found


def _text_faults(sections: Sequence[str], got: str) -> dict[str, int]:
    rest = got.lstrip()
    for section in sections:
        core = section.strip()
        if not rest.startswith(core):
            break
        rest = rest[len(core) :].lstrip()
    else:
        if not rest:
            return {}
    expected, shown = _bare("".join(sections)), _bare(got)
    if expected == shown:
        return {"white space": 1}
    at = 0
    for section in map(_bare, sections):  # if all sections are there in order, nothing is lost
        at = shown.find(section, at)
        if at < 0:
            break
        at += len(section)
    else:
        return {"leak": len(shown) - len(expected)}
    same = sum(block.size for block in SequenceMatcher(None, expected, shown, autojunk=False).get_matching_blocks())
    return {"lost text": len(expected) - same, "leak": len(shown) - same}


def _bare(text: str) -> str:
    return "".join(text.split())


def _call_faults(expected: Sequence[WrittenCall], reported: Sequence[tuple[str, Any]]) -> dict[str, int]:
    written = [(call.name, _canonical(call.arguments)) for call in expected]
    got: list[tuple[str, str]] = []
    for name, arguments in reported:
        value = _object(arguments, empty=(name, "{}") in written)
        if value is not None:  # arguments that cannot be read are never executed, so this is no call
            got.append((name, _canonical(value)))
    blocks = SequenceMatcher(None, written, got, autojunk=False).get_matching_blocks()
    missing, more = list(written), list(got)
    for at, there, size in reversed(blocks):
        del missing[at : at + size], more[there : there + size]
    names = (Counter(name for name, _ in missing) & Counter(name for name, _ in more)).total()
    return {"wrong arguments": names, "lost call": len(missing) - names, "false call": len(more) - names}


def _object(arguments: Any, *, empty: bool) -> dict[str, Any] | None:
    """Return the arguments, or None for arguments that are not an object. With `empty`, they may be missing."""
    if arguments is None or arguments == "":
        return {} if empty else None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, dict) else None


def _canonical(value: Any) -> str:
    """Return JSON in which 1.0 equals 1, as in most languages."""
    return json.dumps(one_number(value), sort_keys=True)
