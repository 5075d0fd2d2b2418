"""Events of calls in sequence, as model APIs send them.

An array of calls in text ends all of them together, and the native calls of some servers are interleaved. But clients
expect that a call is complete when another one starts: the `openai` package parses its arguments then.
"""

from __future__ import annotations

from streamtools.events import Call, CallDelta, CallStart, Error, UIEvent


class CallOrder:
    """Passes the events of one call until it ends. The events of other calls wait."""

    def __init__(self) -> None:
        self._open: str | None = None
        self._waiting: dict[str, list[UIEvent]] = {}

    def take(self, event: UIEvent) -> list[UIEvent]:
        """Return the events that can be sent after `event` has arrived."""
        match event:
            case CallStart(call_id) if self._open is None:
                self._open = call_id
            case CallStart(call_id):
                self._waiting[call_id] = [event]
                return []
            case CallDelta(call_id) | Error(call_id=str() as call_id) if call_id in self._waiting:
                self._waiting[call_id].append(event)
                return []
            case Call(call) if call.id in self._waiting:
                self._waiting[call.id].append(event)
                return []
            case Error(call_id=str() as call_id) if call_id == self._open:
                return [event, *self._release()]
            case Call(call) if call.id == self._open:
                return [event, *self._release()]
        return [event]

    def _release(self) -> list[UIEvent]:
        """Return the waiting events, up to and including the first call that has not ended."""
        released: list[UIEvent] = []
        self._open = None
        while self._open is None and self._waiting:
            call_id = next(iter(self._waiting))
            released += (events := self._waiting.pop(call_id))
            if not isinstance(events[-1], Call | Error):
                self._open = call_id
        return released
