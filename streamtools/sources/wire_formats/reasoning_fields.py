"""The fields of a chat completion that hold its reasoning. The next request must return them. Sans-IO.

Compatible servers use different fields. The text is reported when it arrives, whatever its field. OpenRouter adds
details, whose pieces are joined here: one entry per block of reasoning, with its signature or its encrypted data.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.events import ReasoningDelta, SourceEvent
from streamtools.json_values import fits, whole
from streamtools.limits import Limits

_GROWING = ("text", "summary")


class ReasoningFields:
    """Collects the reasoning fields of one turn for the next request."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen: dict[str, None] = {}
        self._entries: list[dict[str, Any]] = []
        self._pieces: dict[str, list[str]] = {}  # of the last entry
        self._room = limits.text

    def note(self, events: list[SourceEvent], *names: str) -> bool:
        """Add new field names to the last event if it is reasoning. Returns whether it is."""
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
            self._join_pieces()
            last = dict.fromkeys(entry)
            self._entries.append(last)
        for name, value in entry.items():
            if name in _GROWING and isinstance(value, str):
                self._pieces.setdefault(name, []).append(value)
                last.setdefault(name, None)
            elif value is not None or name not in last:
                last[name] = value

    def _join_pieces(self) -> None:
        for name, pieces in self._pieces.items():
            self._entries[-1][name] = whole("".join(pieces))
        self._pieces.clear()

    def close(self) -> list[SourceEvent]:
        """Return an event with the details of the turn, if there are any."""
        self._join_pieces()
        entries = [{name: value for name, value in entry.items() if value is not None} for entry in self._entries]
        self._entries = []
        fits_in = entries and self._room >= 0
        return [ReasoningDelta("", own={"openai": {"reasoning_details": entries}})] if fits_in else []
