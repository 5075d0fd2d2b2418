"""The calls of one span: usually one, or several if the dialect writes an array.

`SpanCalls` keeps the drafts of the calls while the grammar reads them. `resolve` then turns each draft into a call, or
into an error that holds its part of the text. So no text is lost, and a malformed call does not harm its siblings.
"""

from __future__ import annotations

from collections.abc import Callable

from streamtools.calls import ReadCall, ToolCall, read_envelope
from streamtools.errors import Code
from streamtools.events import Markup, Thinking, Warning
from streamtools.json_values import Decoded, Rejected, decode_json
from streamtools.parsing.call_events import BROKEN_OFF, CallDraft, CallEvents
from streamtools.parsing.json_repair import MAX_LENGTH, keeps_arguments, repair

_MESSAGES = {
    Code.INVALID_JSON: "the call is not valid JSON",
    Code.INVALID_ARGUMENTS: "the arguments are not a JSON object",
    Code.TRUNCATED: "the call was cut off",
    Code.TOO_LARGE: "the call is too long",
    Code.TOO_DEEP: "the call nests too deeply",
    Code.TOO_MANY_CALLS: "the answer holds too many calls",
    Code.UNRECOGNISED_TOOL_CALL: "no call follows the marker of a call",
}


class SpanCalls:
    """The calls of one span, from their first character to the events that end them."""

    def __init__(self, output: CallEvents, dialect: str | None, show_text: Callable[[str], bool]) -> None:
        """Report calls to `output`. Without a `dialect`, the span is a tool result that the model wrote itself.

        `show_text` shows a malformed call as text, if that is the policy. It returns whether that stops the turn.
        """
        self.output = output
        self._dialect = dialect
        self._show_text = show_text
        self.drafts: list[CallDraft] = []  # the calls that are not resolved
        self.current: CallDraft | None = None  # the last of them
        self.found = False  # the span held a call, or an error in its place
        self.stopped = False  # the turn is stopped, so text that is still read does not count
        self._lost_from: int | None = None  # the index of the first call that a gap in the stream damages

    @property
    def are_calls(self) -> bool:
        """Whether the span holds calls, and not a forged result."""
        return self._dialect is not None

    @property
    def too_many(self) -> bool:
        """Whether the turn has begun more calls than its limit."""
        return self.output.count > self.output.options.limits.calls

    def begin(self, place: int) -> None:
        """Begin a call at a place of the span."""
        self.current = self.output.begin_call(place)
        self.drafts.append(self.current)

    def lose(self) -> None:
        """Mark a gap: a part of the stream is missing here, and a call around the gap must not run."""
        if self._lost_from is None:
            self._lost_from = sum(call.complete for call in self.drafts)

    def discard(self, raw: str) -> None:
        """End the calls as superseded, because another model continues the answer. `raw` is the text of the span."""
        for call in self.drafts:
            assert self._dialect is not None
            self.output.reject_call(call, Rejected(Code.SUPERSEDED, BROKEN_OFF), raw, self._dialect)
            raw = ""
        self.drafts.clear()

    def resolve(
        self, raw: str, begin: int, code: Code | None, *, survivors: bool, ended: bool = False, closing: int = 0
    ) -> None:
        """Turn each draft into a call or an error. `raw` is the text of the span from the place `begin` on.

        With `code`, all calls become errors of that code, except complete ones if there are `survivors`. `ended` says
        that the stream ended, and `closing` is the place before the last closing tag.
        """
        output, drafts = self.output, self.drafts
        if self._dialect is None:
            output.add(Warning, Code.FORGED_RESULT, "the model wrote a tool result itself", raw=raw)
            return
        if output.options.keep_markup:
            before = raw[: drafts[0].begin - begin] if drafts else raw
            if before:
                output.add(Markup, before)
        for index, call in enumerate(drafts):
            call_end = drafts[index + 1].begin - begin if index + 1 < len(drafts) else len(raw)
            call_raw = raw[call.begin - begin : call_end]
            json_begin = call.json_begin - begin
            try:
                if self._lost_from is not None and index >= self._lost_from:
                    raise Rejected(Code.TRUNCATED, "a part of the call was lost in transit")
                if code and not (survivors and call.complete):
                    raise Rejected(code, _MESSAGES[code])
                if call.json_end < 0:
                    raise Rejected(Code.UNRECOGNISED_TOOL_CALL, _MESSAGES[Code.UNRECOGNISED_TOOL_CALL])
                if call.fault is not None:
                    raise call.fault
                text = "".join(call.pieces) if call.converted else raw[json_begin : call.json_end - begin]
                decoded = decode_json(text, strict=output.options.strict, limits=output.options.limits)
                result = self._read(call, decoded, call_raw)
            except Rejected as fault:
                repaired = None
                if fault.code is Code.INVALID_JSON and output.options.repair and (call.complete or not ended):
                    if call.complete and not code:
                        json_end = call.json_end - begin
                    else:
                        json_end = closing - begin if json_begin < closing - begin < call_end else call_end
                    repaired = self._repair(call, raw[json_begin:json_end], call_raw)
                if repaired is None:
                    self._reject(call, fault, call_raw)
                    continue
                result = repaired
            self.found = True
            output.complete_call(call, result)
        drafts.clear()
        self.current = None
        if self._lost_from is not None:
            self._lost_from = 0

    def _read(self, call: CallDraft, decoded: Decoded, raw: str) -> ToolCall:
        """Return the call. `decoded` is its JSON: the whole call, or the arguments if the draft has a name."""
        value, name, options = decoded.value, call.name, self.output.options
        if name and type(value) is dict and not name.isspace():
            envelope = ReadCall(name, value, None)
        else:
            whole = value if name is None else {"name": name, "arguments": value}
            envelope = read_envelope(whole, strict=options.strict, limits=options.limits)
        assert self._dialect is not None
        return ToolCall(
            id=call.id,
            name=envelope.name,
            arguments=envelope.arguments,
            dialect=self._dialect,
            raw=raw,
            repaired=decoded.repaired or envelope.repaired,
            provider_id=envelope.provider_id or call.provider_id,
        )

    def _repair(self, call: CallDraft, text: str, raw: str) -> ToolCall | None:
        """Guess the call that the malformed JSON `text` means. Returns None if that is not possible."""
        output = self.output
        if call.json_begin < 0 or call.converted or not 0 < len(text) <= min(MAX_LENGTH, output.repairs):
            return None
        output.repairs -= len(text)
        decoded = repair(text, output.options.limits)
        if decoded is None:
            return None
        try:
            result = self._read(call, decoded, raw)
        except Rejected:
            return None
        if call.started not in ("", result.name):
            return None
        return result if keeps_arguments(text, result.arguments, alone=call.name is not None) else None

    def _reject(self, call: CallDraft, fault: Rejected, raw: str) -> None:
        output = self.output
        if output.options.on_malformed == "error":
            self.found = True
            assert self._dialect is not None
            output.reject_call(call, fault, raw, self._dialect)
        else:
            output.add(Thinking, False, call.id)
            output.add(Warning, fault.code, fault.message)
            self.stopped = self._show_text(raw)
