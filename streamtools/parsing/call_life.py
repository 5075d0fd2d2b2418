"""The calls that a span of text holds: one as a rule, several if the dialect writes an array.

`WrittenCalls` keeps them until their span ends. Each call then ends as a call or as an error that holds its part of the
text, so that no text is lost and a malformed call does not harm its siblings.
"""

from __future__ import annotations

from collections.abc import Callable

from streamtools.calls import ReadCall, ToolCall, read_envelope
from streamtools.errors import Code
from streamtools.events import Markup, Thinking, Warning
from streamtools.json_values import Decoded, Rejected, decode_json
from streamtools.parsing.call_events import BROKEN_OFF, CallDraft, CallEvents
from streamtools.parsing.json_parts import MOST, keeps_arguments, repair
from streamtools.parsing.reader import RawText

_MESSAGES = {
    Code.INVALID_JSON: "the call is not valid JSON",
    Code.INVALID_ARGUMENTS: "the arguments are no JSON object",
    Code.TRUNCATED: "the call was cut off",
    Code.TOO_LARGE: "the call is too long",
    Code.TOO_DEEP: "the call nests too deeply",
    Code.TOO_MANY_CALLS: "the answer holds too many calls",
    Code.UNRECOGNISED_TOOL_CALL: "there is no call where one should be",
}


class WrittenCalls(RawText):
    """The calls of a span of text: what its grammar reads of each, and how they end with the span."""

    __slots__ = (
        "_calls", "_dialect", "_lost_from", "_output", "_show", "call_id", "current", "found", "several_lines",
        "stopped",
    )  # fmt: skip

    _calls: list[CallDraft]  # those that have not been settled
    _dialect: str | None  # None: the span is no call, but a result that the model wrote itself
    _output: CallEvents
    _show: Callable[[str], bool]  # takes a malformed call that is to be text; returns whether that ends everything
    _lost_from: int | None  # the first call in which a part of the stream is missing, or behind it
    current: CallDraft | None  # the call that is being written, or was written last
    call_id: str | None  # the id of the call whose arguments come next, if text goes out as its deltas at once
    found: bool  # there was a call, or an error in its place
    several_lines: bool  # known at the end
    stopped: bool  # text that is still read does not count: it depends on where the text is cut

    def lose(self) -> None:
        """Mark a gap: a part of the stream is missing here, and a call around it must not run."""
        if self._lost_from is None:
            self._lost_from = sum(call.complete for call in self._calls)

    def exceed(self, code: Code, place: int | None = None) -> None:
        """Report that a limit is met at `place`, or behind all that has come; from there on nothing is stored."""
        place = self.received if place is None else place
        if not (self.origin or self._calls):  # in a wrapper, before its first call
            self.begin_call(0)
            if not self.stores:
                return
        raw = self.kept_to(place)
        self.skip_from(place)
        self._settle(raw, self.origin, code, True)
        self.take = self.call_id = None

    def close(self, code: Code | None = None, *, survivors: bool = False) -> None:
        """End the span here; its calls are settled.

        Without `code`, each is a call, or an error of its own; with it all are errors, except, if there are
        `survivors`, those that are complete.
        """
        if self.stores:
            raw = "".join(self.parts)[: self.base + self.at - self.origin]
            self.several_lines = self.several_lines or "\n" in raw
            self._settle(raw, self.origin, code, survivors)
        else:
            self.several_lines = True  # not known, and likely
            count = self.skipped
            if count < 0:  # the limit was met while the grammar looked at what follows: that has been reported
                self.at, count = self.at - count, 0
            if count and not self.stopped:
                self._output.add(Warning, Code.SKIPPED, f"{count} characters of a call were skipped", count=count)

    def finish(self, code: Code | None = None) -> None:
        """End the last call here, as `close` does, and report it; the span goes on."""
        if self.stores:
            origin = self.origin
            raw = self.hand_out()
            self.several_lines = self.several_lines or "\n" in raw
            self._settle(raw, origin, code, False)
            if self.stopped:
                self.skip_from(self.place)

    def warn(self, code: Code, message: str) -> None:
        """Add a warning that repeats no text."""
        if self.stores:
            self._output.add(Warning, code, message)

    def discard(self) -> None:
        """End the calls of the span as superseded: the answer that held them breaks off here, and another follows."""
        raw = "".join(self.parts) if self.stores else ""
        for call in self._calls:
            assert self._dialect is not None
            self._output.reject_call(call, Rejected(Code.SUPERSEDED, BROKEN_OFF), raw, self._dialect)
            raw = ""
        self._calls.clear()

    @property
    def in_call(self) -> bool:
        """Whether the last call of the span, or what should be one, is not complete."""
        return self.current is not None and not self.current.complete

    def begin_call(self, place: int) -> None:
        """A call, or what stands in its place, begins; the first is the one that the marker began."""
        if self._dialect is None:
            return
        if self.current is None or self.current.json_begin >= 0:
            if not self.stores:
                return
            output = self._output
            self.current = call = output.begin_call(place)
            self._calls.append(call)
            if output.count > output.options.limits.calls:
                self.exceed(Code.TOO_MANY_CALLS, place + 1)
        if self.current is not None:
            self.current.json_begin = place

    def end_call(self, place: int | None = None) -> None:
        """The last call is complete at `place`, or here."""
        if self.current is not None:
            self.current.json_end = self.place if place is None else place

    def call(self, name: str) -> None:
        """The last call is of this tool; its JSON holds no name, but its arguments."""
        if self.current is not None:
            self.current.name = name
            self.name_call(name)

    def name_call(self, name: str) -> None:
        """The name of the last call is certain; it is reported at once, unless the call may yet turn out to be text."""
        if self.current is not None and self._output.options.on_malformed == "error" and name.strip():
            self._output.start_call(self.current, name)

    def identify(self, provider_id: str) -> None:
        """Set the id that the model has written for the last call."""
        if self.current is not None:
            self.current.provider_id = provider_id

    def blame(self, code: Code, message: str) -> None:
        """Make the last call an error; the first reason counts."""
        if self.current is not None and self.current.fault is None:
            self.current.fault = Rejected(code, message)

    def convert(self) -> None:
        """The arguments of the last call come as the pieces that `write` is given, and not as JSON of the span."""
        if self.current is not None:
            self.current.converted = True

    def write(self, text: str) -> None:
        """Add a piece to the JSON text of the last call's arguments, which are not written as JSON."""
        call = self.current
        if call is not None:
            call.pieces.append(text)
            if self._output.call_deltas:
                self._output.tell_arguments(call, text)

    def _settle(self, raw: str, origin: int, code: Code | None, survivors: bool) -> None:
        """Turn `raw`, the text of the span from `origin` on, into the calls and errors that it holds, as in `close`."""
        output, calls = self._output, self._calls
        if self._dialect is None:
            output.add(Warning, Code.FORGED_RESULT, "the model wrote a tool result itself", raw=raw)
            return
        if output.options.keep_markup:
            before = raw[: calls[0].begin - origin] if calls else raw
            if before:
                output.add(Markup, before)
        for index, call in enumerate(calls):
            end = calls[index + 1].begin - origin if index + 1 < len(calls) else len(raw)
            own = raw[call.begin - origin : end]
            begin = call.json_begin - origin
            try:
                if self._lost_from is not None and index >= self._lost_from:
                    raise Rejected(Code.TRUNCATED, "a part of the call was lost on its way")
                if code and not (survivors and call.complete):
                    raise Rejected(code, _MESSAGES[code])
                if call.json_end < 0:
                    raise Rejected(Code.UNRECOGNISED_TOOL_CALL, _MESSAGES[Code.UNRECOGNISED_TOOL_CALL])
                if call.fault is not None:
                    raise call.fault
                text = raw[begin : call.json_end - origin] if not call.converted else "".join(call.pieces)
                decoded = decode_json(text, strict=output.options.strict, limits=output.options.limits)
                result = self._read(call, decoded, own)
            except Rejected as fault:
                repaired = None
                if fault.code is Code.INVALID_JSON and output.options.repair and (call.complete or not self.ended):
                    closing = self.before_closing - origin
                    whole = call.complete and not code
                    last = call.json_end - origin if whole else closing if begin < closing < end else end
                    repaired = self._repair(call, raw[begin:last], own)
                if repaired is None:
                    self._reject(call, fault, own)
                    continue
                result = repaired
            self.found = True
            output.complete_call(call, result)
        calls.clear()
        self.current = None
        if self._lost_from is not None:
            self._lost_from = 0

    def _read(self, call: CallDraft, decoded: Decoded, raw: str) -> ToolCall:
        """Return what a call says, whose JSON is `decoded`: all of it, or its arguments where it has a name."""
        value, name, options = decoded.value, call.name, self._output.options
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
        """Return what a malformed call was meant to say, whose JSON is `text`; None if that cannot be guessed."""
        output = self._output
        if call.json_begin < 0 or call.converted or not 0 < len(text) <= min(MOST, output.repairs):
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
        output = self._output
        if output.options.on_malformed == "error":
            self.found = True
            assert self._dialect is not None
            output.reject_call(call, fault, raw, self._dialect)
        else:
            output.add(Thinking, False, call.id)
            output.add(Warning, fault.code, fault.message)
            self.stopped = self._show(raw)
