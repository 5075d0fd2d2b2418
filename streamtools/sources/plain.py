"""Adapters of streams that need no decoding: plain text as strings, and source events that are made already. Sans-IO.

Plain text has no terminator but its end. An iterable that is exhausted has stopped. One that raises was interrupted.
"""

from __future__ import annotations

from typing import get_args

from streamtools.errors import UnreadableSource
from streamtools.events import ChainCompleted, ProviderCompleted, SourceError, SourceEvent, TextDelta
from streamtools.sources.adapter import Adapter, interrupted
from streamtools.sources.surrogates import PairJoiner

_EVENTS: tuple[type, ...] = get_args(SourceEvent)


class PlainText(Adapter):
    """Strings into text. None counts as an empty string: SDKs yield it for deltas without text."""

    def __init__(self) -> None:
        self._text = PairJoiner()

    def take(self, item: object) -> list[SourceEvent]:
        if item is not None and not isinstance(item, str):
            raise UnreadableSource(f"a stream of strings was expected; it yields {type(item)!r}")
        text = self._text.join(item or "")
        return [TextDelta(text)] if text else []

    def close(self, cause: str | None = None) -> list[SourceEvent]:
        if self._over:
            return []
        self._over = True
        rest = self._text.close()
        end = ProviderCompleted(finish_reason="stop") if cause is None else interrupted(cause)
        return [TextDelta(rest), end] if rest else [end]


class ReadyEvents(Adapter):
    """Passes source events on unchanged."""

    def take(self, item: object) -> list[SourceEvent]:
        if not isinstance(item, _EVENTS):
            raise UnreadableSource(f"a stream of source events was expected; it yields {type(item)!r}")
        event: SourceEvent = item  # type: ignore[assignment]  # mypy cannot see what `get_args` returns
        if isinstance(event, ProviderCompleted):
            self._over = event.ends_run
        elif isinstance(event, ChainCompleted | SourceError):
            self._over = True
        return [event]

    def close(self, cause: str | None = None) -> list[SourceEvent]:
        if cause is None or self._over:
            return []
        self._over = True
        return [interrupted(cause)]
