"""Calls one after the other, as the APIs of models send them, where a model has written some at once. Sans-IO.

An array of calls in text ends them together, and there are servers whose native calls come in turns. Clients of those
APIs take a call for ended when another begins: openai's own reads its arguments then, and raises for half of them.
"""

from __future__ import annotations

from streamtools.events import Call, CallDelta, CallStart, Error, UIEvent


class CallOrder:
    """Lets the events of one call through until it has ended; those of others wait for that."""

    def __init__(self) -> None:
        self._open: str | None = None
        self._waiting: dict[str, list[UIEvent]] = {}  # what has come of each call that has begun meanwhile

    def take(self, event: UIEvent) -> list[UIEvent]:
        """Return the events that are next, now that `event` has come."""
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
                return [event, *self._go_on()]
            case Call(call) if call.id == self._open:
                return [event, *self._go_on()]
        return [event]

    def _go_on(self) -> list[UIEvent]:
        """Return what has waited for the end of a call, up to a call that has not ended."""
        events: list[UIEvent] = []
        self._open = None
        while self._open is None and self._waiting:
            call_id = next(iter(self._waiting))
            events += (waited := self._waiting.pop(call_id))
            if not isinstance(waited[-1], Call | Error):
                self._open = call_id
        return events
