"""Answers of a model, with the expected text and calls."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from benchmarks import texts
from streamtools import Dialect, Parser
from streamtools.events import CallDelta, Text, UIEvent
from streamtools.json_values import compact

TOOLS = (
    {
        "name": "write_file",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "overwrite": {"type": "boolean"}},
        },
    },
    {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
)
"""The tools that are called, for dialects whose text does not say what is a number."""

BODIES = {
    "hash_marker": "JSON",
    "tilde_fence": "JSON in a fence",
    "hermes_json": "JSON in tags",
    "mistral_list": "an array of calls",
    "mistral_args": "a name, then JSON",
    "harmony": "channels, JSON",
    "kimi_k3_xtml": "channels, tags",
    "glm_xml": "pairs of keys and values",
    "anthropic_xml": "names in attributes",
    "qwen3_coder_xml": "parameters typed by a schema",
    "lfm2_pythonic": "Python literals",
    "gemma4": "keys without quotes",
    "morph_xml": "names as tags",
}
"""One dialect of each kind of body."""


@dataclass(frozen=True)
class Answer:
    """A text, and the visible text and calls in it."""

    text: str
    visible: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    told: str = ""  # the pieces of its arguments, joined; empty where they are not compared

    def check(self, events: list[UIEvent], parser: Parser) -> None:
        """Raise AssertionError if `events` differ from the expected result."""
        visible = "".join(event.text for event in events if isinstance(event, Text))
        # Around calls, some dialects take the line feeds that their templates write for a part of the markup.
        assert self.visible == visible or (self.calls and self.visible.split() == visible.split()), "visible text"
        assert list(self.calls) == [(call.name, call.arguments) for call in parser.calls], "calls"
        assert not parser.errors, parser.errors[0]
        told = "".join(event.text for event in events if isinstance(event, CallDelta))
        assert not self.told or self.told == told, "pieces of arguments"


def plain(text: str) -> Answer:
    """Return an answer without calls."""
    return Answer(text, text)


def one_call(dialect: Dialect, arguments: dict[str, Any]) -> Answer:
    """Return an answer with one call between some words."""
    call = dialect.write_call("write_file", arguments)
    before, behind = "I will write the file.\n\n", "\nDone."
    told = compact(arguments) if has_json(dialect) else ""
    return Answer(before + call + behind, before + behind, (("write_file", arguments),), told)


def many_calls(dialect: Dialect, count: int) -> Answer:
    """Return an answer with `count` small calls and a sentence before each."""
    rng = random.Random(5)
    text, visible, calls = [], [], []
    for _ in range(count):
        words = texts.sentence(rng) + "\n"
        arguments = texts.small_arguments(rng)
        text += [words, dialect.write_call("get_weather", arguments), "\n"]
        visible += [words, "\n"]
        calls.append(("get_weather", arguments))
    return Answer("".join(text), "".join(visible), tuple(calls))


def call_in_prose(dialect: Dialect, size: int) -> Answer:
    """Return an answer of `size` characters with a small call in the middle."""
    before, behind = texts.prose(size // 2, seed=6) + "\n\n", "\n\n" + texts.prose(size // 2, seed=7)
    arguments = texts.small_arguments(random.Random(6))
    call = dialect.write_call("get_weather", arguments)
    return Answer(before + call + behind, before + behind, (("get_weather", arguments),))


def has_json(dialect: Dialect) -> bool:
    """Return whether the arguments of calls are written as JSON."""
    arguments = {"words": 'a "b"\n', "count": 1}
    return compact(arguments) in dialect.write_call("name", arguments)
