"""What the formats share: the order of what a turn said, and the names and the arguments of its calls."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streamtools.calls import NATIVE, ToolCall
from streamtools.history.formats.plain import plain
from streamtools.history.messages import Assistant, Message, Results, Thought
from streamtools.json_values import compact

_odd = re.compile(r"[^A-Za-z0-9_-]")


def in_order(message: Assistant) -> list[Thought | str | ToolCall]:
    """Return what a turn said, one thing after the other; what it thought last and did nothing about is left out.

    A provider that reads its own reasoning again wants it before what it led to.
    """
    said: list[Thought | str | ToolCall] = [each for each in message.thoughts if each.behind == 0]
    if message.text:
        said.append(message.text)
    for number, call in enumerate(message.calls, 1):
        said.append(call)
        said += (each for each in message.thoughts if each.behind == number)
    while said and isinstance(said[-1], Thought):
        said.pop()
    return said


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON text."""
    return compact(plain(call.arguments))


def fit(name: str) -> str:
    """Return a name as providers take it: at most 64 of `[A-Za-z0-9_-]`."""
    return _odd.sub("_", name)[:64]


class Names:
    """The names of the calls in a history, as its provider takes them.

    A model may call what does not exist, by names that its provider then refuses to read. The name of a tool that has
    answered is one that the provider has taken, and stays.
    """

    def __init__(self, history: Iterable[Message]) -> None:
        self._taken = {
            result.name
            for message in history
            if isinstance(message, Results)
            for result in message.results
            if result.dialect == NATIVE and result.name.strip() and not result.is_error
        }

    def of(self, name: str) -> str:
        """Return the name as the provider takes it."""
        return name if name in self._taken else fit(name) or "unknown"
