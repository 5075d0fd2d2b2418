"""The fields in which a chat completion tells its reasoning, for the next request, which has to give it back by those.

Each server that speaks as chat completions does has a term of its own for them. The text is told as it comes, whatever
its field. Beside it stand the details of OpenRouter, whose pieces become whole here: one entry for each block of
reasoning, with its signature or what is encrypted.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.events import ReasoningDelta, SourceEvent
from streamtools.json_values import fits, whole
from streamtools.limits import Limits

_GROWING = ("text", "summary")


class ReasoningFields:
    """Gathers the fields of one turn in which its reasoning came, for the next request."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: dict[str, None] = {}
        self._entries: list[dict[str, Any]] = []
        self._pieces: dict[str, list[str]] = {}  # of the last of them
        self._room = limits.text

    def note(self, events: list[SourceEvent], *names: str) -> bool:
        """Tell with the last event the fields in which it came, if they are new and it is a piece of reasoning."""
        new = [name for name in names if name not in self._seen]
        if not (events and isinstance(last := events[-1], ReasoningDelta)):
            return False
        if new:
            self._seen |= dict.fromkeys(new)
            events[-1] = msgspec.structs.replace(last, own={"openai": dict.fromkeys(new)})
        return True

    def add(self, details: Any) -> None:
        """Add a value of `reasoning_details`."""
        for entry in details if isinstance(details, list) else (details,):
            if isinstance(entry, dict) and fits(entry, self._limits.depth):
                self._add(entry)

    def _add(self, entry: dict[str, Any]) -> None:
        self._room -= sum(len(value) for value in entry.values() if isinstance(value, str))
        if self._room < 0:
            return
        last = self._entries[-1] if self._entries else None
        same = last is not None and all(last.get(name) == entry.get(name) for name in ("type", "index"))
        if last is None or not same or "data" in entry or (last.get("signature") and entry.get("text")):
            self._settle()
            last = dict.fromkeys(entry)
            self._entries.append(last)
        for name, value in entry.items():
            if name in _GROWING and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
                last.setdefault(name, None)
            elif value is not None or name not in last:
                last[name] = value

    def _settle(self) -> None:
        for name, pieces in self._pieces.items():
            self._entries[-1][name] = whole("".join(pieces))
        self._pieces.clear()

    def close(self) -> list[SourceEvent]:
        """Return what tells the details of the turn, if there are any."""
        self._settle()
        entries = [{name: each[name] for name in each if each[name] is not None} for each in self._entries]
        self._entries = []
        fits_in = entries and self._room >= 0
        return [ReasoningDelta("", own={"openai": {"reasoning_details": entries}})] if fits_in else []
