"""A case as data: a text of a model in one dialect, what is right to make of it, and why; one case is a line of JSON.

What is right is one outcome or several, because formats leave things open: whether a half-written tag at the end of a
stream is shown, say. Any of them will do. `schema` returns the JSON schema of a line, with what each field means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

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
