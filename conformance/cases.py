"""A case as data: a text of a model in one dialect, what is right to make of it, and why; one case is a line of JSON.

What is right is one outcome or several, because formats leave things open: whether a half-written tag at the end of a
stream is shown, say. Any of them will do. `schema` returns the JSON schema of a line, with what each field means.
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
    Meta(description="Sections, in order, each exactly as it stands here; white space around them is not judged."),
]
Cut = Literal["tokens", "characters", "sevens", "whole", "everywhere"]
"""How a text is cut into deltas: special tokens and words whole, as a server of models does it; into single characters;
into pieces of seven; not at all; or in two, at each place in turn."""


class WrittenCall(msgspec.Struct, frozen=True):
    """A call as it was written."""

    name: str
    arguments: dict[str, Any]


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is made of a text."""

    text: Annotated[_Text, Meta(description="What the reader sees.")]
    calls: Annotated[tuple[WrittenCall, ...], Meta(description="What may be executed, in order.")] = ()
    reasoning: Annotated[_Text, Meta(description="What the model thought.")] = ()
    errors: Annotated[
        tuple[str, ...], Meta(description="Why sections of the text are no calls: codes of streamtools.")
    ] = ()


class Case(msgspec.Struct, frozen=True):
    """A text and what is right to make of it."""

    id: Annotated[str, Meta(description="The dialect, the rule, and what tells apart cases of one rule.")]
    dialect: Annotated[str, Meta(description="How the calls are written: an id of docs/dialects.md.")]
    rule: str
    why: Annotated[str, Meta(description="Why this is right.")]
    text: Annotated[str, Meta(description="The whole answer of the model.")]
    tools: Annotated[tuple[dict[str, Any], ...], Meta(description="The declared tools, each with a JSON schema.")]
    expected: Annotated[tuple[Outcome, ...], Meta(min_length=1, description="Each of these is right.")]
    cuts: Annotated[
        tuple[Cut, ...],
        Meta(description="How to cut the text; `everywhere` is in two at each place. The outcome is always the same."),
    ]


def schema() -> dict[str, Any]:
    """Return the JSON schema of a case."""
    return msgspec.json.schema(Case)


def to_line(case: Case) -> str:
    """Return a case as a line of JSON, without a line end."""
    return msgspec.json.encode(case).decode()


def read_lines(lines: Iterable[str]) -> Iterator[Case]:
    """Yield the cases in lines of JSON. Raises msgspec.ValidationError for a line that is not as the schema says."""
    for line in lines:
        if line.strip():
            yield msgspec.json.decode(line, type=Case)


_TOKENS = re.compile(
    r"<[|/\uff5c]?[^<>\s]{1,60}+>|\[/?[A-Z_]{3,20}+\]|\]<\]\w{1,20}+\[>\[|[ ]?\w{1,6}|\s+|[^\w\s][^\w\s<\[\]]?"
)


def deltas(text: str, cut: Cut) -> Iterator[list[str]]:
    """Yield the ways to cut a text, each as a list of deltas; only `everywhere` is more than one."""
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


# How an answer misses what is right: a leak and a loss are different faults, and each has a name of its own.
#
# An answer is judged by what the parser tells: the text of one that gives calls alone is not judged, nor are the codes
# of one that has none. Where several outcomes are right, that one counts which the answer misses least.

FAULTS: Final = {
    "leak": "characters of a call, a tag or a thought stand in the visible text",
    "lost text": "visible text has vanished",
    "lost call": "a call has vanished, though all of it came",
    "false call": "something would be executed that is no call: it is cut off, malformed, or only shown in code",
    "wrong arguments": "a call would be executed with other arguments than were written",
    "white space": "white space inside a section of text is not as it was written",
    "reasoning": "what the model thought is not told as that",
    "code": "the code of an error is missing, or another one",
    "raised": "the parser raised an exception, or gave no answer",
}
"""The faults, the gravest for a reader first."""


@dataclass(frozen=True)
class Reported:
    """What a parser made of a text; None stands for what it does not tell of any text."""

    text: str | None = None
    calls: Sequence[tuple[str, Any]] = ()
    """Names, and arguments: an object, or the JSON of one as it came."""
    reasoning: str | None = None
    errors: Sequence[str] | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Reported:
        """Return what an adapter answered: `text`, `reasoning`, `calls`, `errors`, each of them or not.

        Raises ValueError for an answer of another form.
        """
        try:
            calls = tuple((str(call["name"]), call.get("arguments")) for call in answer.get("calls") or ())
            errors = answer.get("errors")
            return cls(answer.get("text"), calls, answer.get("reasoning"), None if errors is None else list(errors))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not an answer: {answer!r} ({type(error).__name__}: {error})") from error


def judge(case: Case, reported: Reported) -> Counter[str]:
    """Return the faults of an answer: names of `FAULTS`, with how many characters or calls each is about."""
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
        wanted, got = Counter(outcome.errors), Counter(reported.errors)
        found["code"] = max((wanted - got).total(), (got - wanted).total())
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
    wanted, shown = _bare("".join(sections)), _bare(got)
    if wanted == shown:
        return {"white space": 1}
    at = 0
    for section in map(_bare, sections):  # all of it is there, in order: then nothing is lost
        at = shown.find(section, at)
        if at < 0:
            break
        at += len(section)
    else:
        return {"leak": len(shown) - len(wanted)}
    same = sum(block.size for block in SequenceMatcher(None, wanted, shown, autojunk=False).get_matching_blocks())
    return {"lost text": len(wanted) - same, "leak": len(shown) - same}


def _bare(text: str) -> str:
    return "".join(text.split())


def _call_faults(wanted: Sequence[WrittenCall], reported: Sequence[tuple[str, Any]]) -> dict[str, int]:
    written = [(call.name, _canonical(call.arguments)) for call in wanted]
    got: list[tuple[str, str]] = []
    for name, arguments in reported:
        value = _object(arguments, empty=(name, "{}") in written)
        if value is not None:  # what cannot be read is never executed, so it is no call
            got.append((name, _canonical(value)))
    blocks = SequenceMatcher(None, written, got, autojunk=False).get_matching_blocks()
    missing, more = list(written), list(got)
    for at, there, size in reversed(blocks):
        del missing[at : at + size], more[there : there + size]
    names = (Counter(name for name, _ in missing) & Counter(name for name, _ in more)).total()
    return {"wrong arguments": names, "lost call": len(missing) - names, "false call": len(more) - names}


def _object(arguments: Any, *, empty: bool) -> dict[str, Any] | None:
    """Return the arguments; of none at all an empty object, if one was written: else they may not have come yet."""
    if arguments is None or arguments == "":
        return {} if empty else None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, dict) else None


def _canonical(value: Any) -> str:
    """Return JSON in which 1.0 is 1, as most languages have it."""
    return json.dumps(one_number(value), sort_keys=True)
