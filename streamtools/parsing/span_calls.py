"""The calls of one span: usually one call, or several calls if the dialect writes an array.

`SpanCalls` stores a draft of each call while the grammar reads the text. `resolve` then turns each draft into a call
or into an error with the text of that call. So no text is lost, and a malformed call does not affect the other calls.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from streamtools.calls import ReadCall, ToolCall, read_envelope, reject_misplaced
from streamtools.errors import Code
from streamtools.events import Markup, Thinking, Warning
from streamtools.json_values import Decoded, Rejected, decode_json
from streamtools.parsing.call_events import BROKEN_OFF, CallDraft, CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.json_repair import MAX_LENGTH, keeps_arguments, repair

MESSAGES = {
    Code.INVALID_JSON: "the call is not valid JSON",
    Code.INVALID_ARGUMENTS: "the arguments are not a JSON object",
    Code.TRUNCATED: "the call was cut off",
    Code.TOO_LARGE: "the call is too long",
    Code.TOO_DEEP: "the call nests too deeply",
    Code.TOO_MANY_CALLS: "the answer holds too many calls",
    Code.UNRECOGNISED_TOOL_CALL: "the text after the marker is not a call",
}


class SpanCalls(msgspec.Struct, eq=False):
    """The calls of one span, from their first character to the events that end them."""

    output: CallEvents
    dialect: str | None  # None for a tool result that the model wrote itself, and in reasoning
    declared: Declared
    show_text: Callable[[str], bool]  # shows a malformed call as text; returns True if that stops the turn
    drafts: list[CallDraft] = []  # the calls that `resolve` has not yet turned into calls or errors
    current: CallDraft | None = None  # the last of the drafts
    has_results: bool = False  # whether the span has produced a call or an error
    stopped: bool = False  # whether text after a call has stopped the turn; nothing more is then reported
    lost_from: int | None = None  # the index of the first draft that a gap in the stream affects; None without a gap

    def begin(self, place: int) -> bool:
        """Begin a call at the position `place` of the span. Returns False if the turn has too many calls."""
        self.current = self.output.begin_call(place)
        self.drafts.append(self.current)
        return self.output.calls_begun <= self.output.options.limits.calls

    def lose(self) -> None:
        """Record that part of the stream was lost at this position. Incomplete and later calls become errors."""
        if self.lost_from is None:
            self.lost_from = sum(call.complete for call in self.drafts)

    def discard(self, raw: str) -> None:
        """End all calls with the error `superseded`, because another model continues the answer.

        `raw` is the text of the span. The first error holds this text.
        """
        for call in self.drafts:
            assert self.dialect is not None
            self.output.reject_call(call, Rejected(Code.SUPERSEDED, BROKEN_OFF), raw, self.dialect)
            raw = ""
        self.drafts.clear()

    def resolve(
        self, raw: str, begin: int, code: Code | None, *, survivors: bool, ended: bool = False, closing: int = 0
    ) -> None:
        """Turn each draft into a call or an error. `raw` is the text of the span from the position `begin` on.

        With `code`, the calls become errors with this code. With `survivors=True`, only incomplete calls become errors.
        `ended` is True if the stream has ended. `closing` is the position where the last closing tag begins.
        """
        output, drafts = self.output, self.drafts
        if self.dialect is None:
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
                if self.lost_from is not None and index >= self.lost_from:
                    raise Rejected(Code.TRUNCATED, "a part of the call was lost in transit")
                if code and not (survivors and call.complete):
                    raise Rejected(code, MESSAGES[code])
                if call.json_end < 0:
                    raise Rejected(Code.UNRECOGNISED_TOOL_CALL, MESSAGES[Code.UNRECOGNISED_TOOL_CALL])
                if call.fault is not None:
                    raise call.fault
                text = "".join(call.pieces) if call.converted else raw[json_begin : call.json_end - begin]
                decoded = decode_json(text, limits=output.options.limits)
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
            self.has_results = True
            output.complete_call(call, result)
        drafts.clear()
        self.current = None
        if self.lost_from is not None:
            self.lost_from = 0

    def _read(self, call: CallDraft, decoded: Decoded, raw: str) -> ToolCall:
        """Return the call. `decoded` is the JSON of the whole call or, if the draft has a name, of its arguments."""
        value, name, options = decoded.value, call.name, self.output.options
        if name and type(value) is dict and not name.isspace():
            envelope = ReadCall(name, value, None)
        else:
            whole = value if name is None else {"name": name, "arguments": value}
            envelope = read_envelope(whole, limits=options.limits)
        arguments = envelope.arguments
        if (not arguments or "properties" in arguments) and self.declared.defines(envelope.name, arguments, value):
            raise Rejected(Code.UNRECOGNISED_TOOL_CALL, "the text repeats the definition of a tool")
        if not arguments and name is None:
            reject_misplaced(value, self.declared.arguments(envelope.name).properties)
        assert self.dialect is not None
        return ToolCall(
            id=call.id,
            name=envelope.name,
            arguments=arguments,
            dialect=self.dialect,
            raw=raw,
            repaired=decoded.repaired or envelope.repaired,
            provider_id=envelope.provider_id or call.provider_id,
        )

    def _repair(self, call: CallDraft, text: str, raw: str) -> ToolCall | None:
        """Repair the malformed JSON `text` of a call. Returns None if it cannot be repaired."""
        output = self.output
        if call.json_begin < 0 or call.converted or not 0 < len(text) <= min(MAX_LENGTH, output.repair_room):
            return None
        output.repair_room -= len(text)
        decoded = repair(text, output.options.limits)
        if decoded is None:
            return None
        try:
            result = self._read(call, decoded, raw)
        except Rejected:
            return None
        keeps = keeps_arguments(text, result.arguments, alone=call.name is not None)
        return result if keeps and call.started in ("", result.name) else None

    def _reject(self, call: CallDraft, fault: Rejected, raw: str) -> None:
        output = self.output
        if output.options.on_malformed == "error":
            self.has_results = True
            assert self.dialect is not None
            output.reject_call(call, fault, raw, self.dialect)
        else:
            output.add(Thinking, False, call.id)
            output.add(Warning, fault.code, fault.message)
            self.stopped = self.show_text(raw)
