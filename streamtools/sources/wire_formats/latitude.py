"""Reads the streams of Latitude's prompt runs, in several versions and envelopes. Sans-IO.

A run is a chain of provider turns in one stream. The server-sent event `latitude-event` reports the progress of the
chain. The event `provider-event` holds a part of the AI SDK's stream of one turn. Three envelopes are read:

- The data is the event itself.
- The documentation shows `{"type": "latitude-event", "data": …}`.
- Proxies send `{"type": "event", "event": "latitude-event", "data": …}`, and short events that only they define.

The names of events and fields differ between versions. `_read` and `_convert` know all names of events. Each field is
read under all its names.

Calls are buffered until their turn ends (`BufferedCalls`). The service has run a call if the call has
`providerExecuted`, or if its result follows in the same turn. All other calls are reported with `answerable=False`,
because the service accepts no results. Older servers send calls only in the event that ends a turn, or in
`tools-requested`.

Events of the chain repeat the whole conversation in `messages`. `raw` events omit this field. After a provider's
`error` part, a `chain-error` with more details may arrive. The adapter therefore stores the error of the part. It
reports the stored error at the end of the turn, the chain or the stream. If a `chain-error` with a message arrives
before that end, the adapter reports the `chain-error` instead. The service sends `chain-completed` even after
`chain-error`. This `chain-completed` is ignored, because the adapter reports nothing after the first error.
"""

from __future__ import annotations

from typing import Any

from streamtools.events import ChainCompleted, NativeToolCall, SourceError, SourceEvent
from streamtools.json_values import well_formed
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import Frame
from streamtools.sources.provider_terms import bounded, names, object_in, read_fault, read_usage, text_in
from streamtools.sources.wire_formats.ai_sdk import TurnsAdapter

_EVENTS = ("latitude-event", "provider-event")  # the names of server-sent events
_TURN_EVENTS = names(
    "provider-started chain-step text-delta reasoning reasoning-delta reasoning-signature tool-input-start"
    " tool-call-streaming-start tool-call"
)
"""Events that begin a turn if no turn is open."""
_IGNORED = names(
    "provider-started chain-step chain-started step-started step-completed start start-step text-start text-end"
    " reasoning-start reasoning-end tool-input-delta tool-input-end tool-call-delta"
)
"""Events whose content is not used. For example, `tool-call` repeats the arguments of `tool-call-delta`."""


class Latitude(TurnsAdapter):
    """Converts the SSE events of a Latitude run into source events. The end of the chain ends the run."""

    name = "latitude"

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(limits, answerable=False)
        self._listed = 0  # the number of calls in events that list calls
        self._conversation: str | None = None
        self._turns = 0  # the number of completed turns
        self._fault: SourceError | None = None  # the error of an `error` part; a `chain-error` may follow

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if frame.data.startswith(b"[DONE]"):
            if (fault := self._wrong_format_error(events)) is not None:
                self._fail(fault, events)
            else:
                self._complete_chain({}, events)
            return
        if (envelope := self._decode_object(frame, events)) is None:
            return
        outer_type, inner = envelope.get("type"), envelope.get("data")
        name: Any = frame.event
        event = envelope
        if outer_type in ("event", *_EVENTS) and isinstance(inner, dict):  # an envelope with the event in `data`
            name, event = envelope.get("event") if outer_type == "event" else outer_type, inner
        if isinstance(uuid := event.get("uuid"), str) and name != "provider-event":
            self._conversation = bounded(uuid, 200)
        kind = event["type"] if isinstance(event.get("type"), str) else ""
        if name == "error" or (kind == "error" and name != "provider-event"):
            self._fail_with(event, events)
        elif kind == "error":
            self._fault = self._fault or read_fault(event.get("error"))
        elif not self._convert(kind, event, events):
            if kind in ("tool-result", "tool-error"):
                self._report_answered(event.get("toolCallId"), events)
            self._report_or_pass(frame, envelope, events)

    def _convert(self, kind: str, event: dict[str, Any], events: list[SourceEvent]) -> bool:
        """Append the source events for an event. Returns False if its type is neither converted nor ignored."""
        if kind in _TURN_EVENTS:
            self._in_turn = True
        id, name, signature = (
            value if isinstance(value := event.get(key), str) else None
            for key in ("toolCallId", "toolName", "signature")
        )
        match kind:
            case "text-delta":  # proxies send the text in `content`
                self._add_text(_piece(event), events)
            case "reasoning" | "reasoning-delta" | "reasoning-signature":  # `reasoning-delta` is from AI SDK 5
                self._add_reasoning(_piece(event), events, signature)
            case "tool-input-start" | "tool-call-streaming-start":  # the second name is from AI SDK 4
                if isinstance(id := event.get("toolCallId") or event.get("id"), str):
                    self._calls.begin(id, name, events)
            case "tool-call":
                args = event.get("args")
                self._calls.complete(id, name, event.get("input") if args is None else args, events)
                if event.get("providerExecuted") is True:
                    self._report_answered(id, events)
            case "finish" | "finish-step" | "step-finish":  # the last name is from AI SDK 4
                self._record(event)
            # Events of the chain. The first name is from v3, the second from earlier versions, the third from a proxy.
            case "provider-completed" | "chain-step-complete":
                self._complete_turn(event, events)
            case "chain-completed" | "chain-complete" | "finished":
                self._complete_chain(event, events)
            case "chain-error" | "stream-error":
                self._fail_with(event, events)
            case "tools-requested":  # the first v3 servers end the chain with this event
                self._add_new(event.get("tools"), events)
                self._complete_chain({}, events)
            case _:
                return kind in _IGNORED
        return True

    def _add_new(self, listed: Any, events: list[SourceEvent]) -> bool:
        """Append the calls in `listed` that were not reported before. Returns False if there are none."""
        known = self._calls.reported
        new = [call for call in self._read_calls(listed) if call.id is not None and call.id not in known]
        known.update(call.id for call in new if call.id is not None)
        self._in_turn = self._in_turn or bool(new)
        events += new
        return bool(new)

    def _read_calls(self, listed: Any) -> list[NativeToolCall]:
        """Return the calls of a list, without those that the service has run in this turn."""
        calls = []
        for entry in listed if isinstance(listed, list) else ():
            call = entry if isinstance(entry, dict) else {}
            id, name = text_in(call, "id", "toolCallId"), text_in(call, "name", "toolName")
            arguments = next((call[key] for key in ("arguments", "args", "input") if call.get(key) is not None), None)
            if (id or name) and id not in self._calls.answered:
                self._listed += 1
                calls.append(NativeToolCall(name, arguments, f"listed {self._listed}", id, answerable=False))
        return calls

    def _record(self, event: dict[str, Any]) -> None:
        """Record the finish reason and the usage of the turn. Some servers omit them from the end of the turn."""
        reason = event.get("finishReason")
        self._reason = reason if isinstance(reason, str) else self._reason
        usage = read_usage(event.get("usage")) or read_usage(event.get("totalUsage"))
        self._usage = usage or self._usage

    def _complete_turn(self, event: dict[str, Any], events: list[SourceEvent]) -> None:
        if self._fault is not None:
            self._fail(self._fault, events)
            return
        self._record(event)
        response = object_in(event, "response")
        text = well_formed(response["text"]) if isinstance(response.get("text"), str) else None
        listed = self._read_calls(response.get("toolCalls") or event.get("toolCalls"))
        usage = read_usage(event.get("tokenUsage")) or read_usage(response.get("usage")) or self._usage
        self._end_turn(self._reason, usage, events, text=text, calls=listed or None)
        self._calls.reported.update(call.id for call in listed if call.id is not None)
        self._reason = self._usage = None
        self._turns += 1

    def _complete_chain(self, event: dict[str, Any], events: list[SourceEvent]) -> None:
        """Append the end of the run. If the last turn has no end yet, append its end first.

        Servers before v3 send no event for the end of the last turn.
        """
        if self._in_turn or self._fault is not None or (isinstance(event.get("response"), dict) and not self._turns):
            self._complete_turn(event, events)
        elif self._add_new(event.get("toolCalls"), events):
            self._complete_turn({"finishReason": event.get("finishReason")}, events)
        if not self._over:
            events.append(ChainCompleted(self._conversation))
            self._over = True

    def _fail_with(self, event: dict[str, Any], events: list[SourceEvent]) -> None:
        value = event.get("error") or event.get("message") or _piece(event)
        has_message = read_fault(value, "").message != ""
        self._fail(read_fault(value) if has_message or self._fault is None else self._fault, events)

    def _report_or_pass(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Forward an event as `raw`, without its envelope and `messages`. An `error` frame is reported as an error."""
        if frame.event == "error":
            self._report(value, events)
            return
        self._note_other_format(frame.event, value)
        if isinstance(value, dict) and value.get("type") in ("event", *_EVENTS) and isinstance(value.get("data"), dict):
            value = value["data"]
        if isinstance(value, dict):
            value.pop("messages", None)
        self._pass_raw(value, events)

    def _end(self, events: list[SourceEvent]) -> None:
        if self._fault is not None:
            self._fail(self._fault, events)
        else:
            self._flush(events)


def _piece(event: dict[str, Any]) -> str:
    """Return the text of a delta, from one of several fields. Returns an empty string if there is none."""
    pieces = (event.get(name) for name in ("textDelta", "text", "delta", "content"))
    return next((piece for piece in pieces if isinstance(piece, str)), "")
