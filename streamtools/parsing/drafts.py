"""The calls of one span while they are being written, and what becomes of them.

A span holds one call as a rule, and several where a dialect writes them as an array. Each is announced as soon as it is
certain what it is, and ends as a `call` or an `error` that holds its part of the span's text, so that nothing is lost
and good calls survive bad siblings.
"""

from __future__ import annotations

from collections.abc import Callable

from streamtools.calls import ReadCall, ToolCall, read_envelope
from streamtools.errors import Code
from streamtools.events import Call, CallDelta, CallStart, Error, Thinking, Warning
from streamtools.json_values import Decoded, Rejected, decode_json
from streamtools.parsing.options import Options
from streamtools.parsing.output import Output
from streamtools.parsing.repair import MOST, keeps_arguments, repair

_MESSAGES = {
    Code.INVALID_JSON: "the call is not valid JSON",
    Code.INVALID_ARGUMENTS: "the arguments are no JSON object",
    Code.TRUNCATED: "the call was cut off",
    Code.TOO_LARGE: "the call is too long",
    Code.TOO_DEEP: "the call nests too deeply",
    Code.TOO_MANY_CALLS: "the answer holds too many calls",
    Code.UNRECOGNISED_TOOL_CALL: "there is no call where one should be",
}


class Draft:
    """One call: where its text begins, where its JSON is, whether it has been announced. Places count in the span."""

    __slots__ = (
        "announced",
        "begin",
        "called",
        "fault",
        "id",
        "json_begin",
        "json_end",
        "name",
        "pieces",
        "provider_id",
        "waiting",
    )

    def __init__(self, call_id: str, begin: int) -> None:
        self.id = call_id
        self.begin = begin
        self.json_begin = -1
        self.json_end = -1
        self.name: str | None = None  # where it stands outside of the JSON
        self.provider_id: str | None = None
        self.pieces: list[str] | None = None  # the JSON of its arguments, where they are not written as JSON
        self.fault: Rejected | None = None  # why it cannot be a call, whatever comes
        self.announced = False  # its call-start has gone out
        self.called = ""  # with this name
        self.waiting: list[str] = []  # arguments that came before it

    @property
    def complete(self) -> bool:
        """Whether its JSON, or what stands in its place, has come to its end."""
        return self.json_end >= 0


class Drafts:
    """The calls of one span, in order, and then of the next."""

    __slots__ = (
        "_announces",
        "_dialect",
        "_drafts",
        "_lost_from",
        "_options",
        "_output",
        "_repairs",
        "_show",
        "count",
        "last",
        "stopped",
    )

    def __init__(self, options: Options, output: Output, show: Callable[[str], bool]) -> None:
        """`show` takes the text of a malformed call that is to be text, and returns whether that ends everything."""
        self._announces = options.on_malformed == "error"
        self._repairs = options.repair
        self._options = options
        self._output = output
        self._show = show
        self._drafts: list[Draft] = []
        self.open("")

    def open(self, dialect: str) -> None:
        """Begin a span of a dialect."""
        self.count = False  # one of its calls was one, or an error in the place of one
        self.stopped = False  # what is still read will not be known when the text is cut elsewhere
        self._dialect = dialect
        self._drafts.clear()
        self.last: Draft | None = None  # the call that is being written, or was written last
        self._lost_from: int | None = None  # the first of those in which a part of the stream is missing, or behind it

    @property
    def first(self) -> Draft | None:
        """The first of the calls that have not been settled."""
        return self._drafts[0] if self._drafts else None

    def begin(self, place: int) -> bool:
        """Begin one at `place`; return whether the turn may hold it."""
        output = self._output
        self.last = draft = Draft(output.new_id(), place)
        self._drafts.append(draft)
        output.events.append(Thinking(True, draft.id, output.number()))
        output.count += 1
        return output.count <= self._options.limits.calls

    def name(self, name: str, *, outside: bool = False) -> None:
        """Take note of the name of the last one, which is certain now; `outside` of its JSON it counts."""
        if self.last is not None:
            if outside:
                self.last.name = name
            if self._announces and name.strip():
                self._announce(self.last, name)

    def lose(self) -> None:
        """Take note that a part of the stream is missing here: what is put together around a gap must not run."""
        if self._lost_from is None:
            self._lost_from = sum(draft.complete for draft in self._drafts)

    def settle(self, raw: str, origin: int, code: Code | None, survivors: bool, ended: bool, closing: int) -> None:
        """Turn `raw`, the text of the span from `origin` on, into the calls and the errors that it holds.

        Without `code`, each is a call or what it is itself to blame for; with it all are errors, except, if there are
        `survivors`, those that are complete. `ended` and `closing` say whether the stream has, and where in `raw` the
        closing tag begins, if there is one.
        """
        drafts = self._drafts
        for index, draft in enumerate(drafts):
            end = drafts[index + 1].begin - origin if index + 1 < len(drafts) else len(raw)
            own = raw[draft.begin - origin : end]
            begin = draft.json_begin - origin
            try:
                if self._lost_from is not None and index >= self._lost_from:
                    raise Rejected(Code.TRUNCATED, "a part of the call was lost on its way")
                if code and not (survivors and draft.complete):
                    raise Rejected(code, _MESSAGES[code])
                if draft.json_end < 0:
                    raise Rejected(Code.UNRECOGNISED_TOOL_CALL, _MESSAGES[Code.UNRECOGNISED_TOOL_CALL])
                if draft.fault is not None:
                    raise draft.fault
                text = raw[begin : draft.json_end - origin] if draft.pieces is None else "".join(draft.pieces)
                decoded = decode_json(text, strict=self._options.strict, limits=self._options.limits)
                call = self._read(draft, decoded, own)
            except Rejected as rejected:
                repaired = None
                if rejected.code is Code.INVALID_JSON and self._repairs and (draft.complete or not ended):
                    whole = draft.complete and not code
                    last = draft.json_end - origin if whole else closing if begin < closing < end else end
                    repaired = self._repair(draft, raw[begin:last], own)
                if repaired is None:
                    self._reject(draft, rejected.code, rejected.message, own)
                else:
                    self._accept(draft, repaired)
            else:
                self._accept(draft, call)
        drafts.clear()
        self.last = None
        if self._lost_from is not None:
            self._lost_from = 0

    def _announce(self, draft: Draft, name: str) -> None:
        draft.announced = True
        draft.called = name
        self._output.events.append(CallStart(draft.id, name, self._output.number()))
        if draft.waiting:
            self._output.add(CallDelta, draft.id, "".join(draft.waiting))
            draft.waiting.clear()

    def _repair(self, draft: Draft, text: str, raw: str) -> ToolCall | None:
        """Return what a malformed draft was meant to say, whose JSON is `text`; None if that cannot be guessed."""
        if draft.json_begin < 0 or draft.pieces is not None or not 0 < len(text) <= min(MOST, self._output.repairs):
            return None
        self._output.repairs -= len(text)
        decoded = repair(text, self._options.limits)
        if decoded is None:
            return None
        try:
            call = self._read(draft, decoded, raw)
        except Rejected:
            return None
        if draft.announced and draft.called != call.name:
            return None
        return call if keeps_arguments(text, call.arguments, alone=draft.name is not None) else None

    def _read(self, draft: Draft, decoded: Decoded, raw: str) -> ToolCall:
        """Return what a draft says, whose JSON is `decoded`: all of it, or its arguments where it has a name."""
        value, name, options = decoded.value, draft.name, self._options
        if name and type(value) is dict and not name.isspace():
            envelope = ReadCall(name, value, None)
        else:
            whole = value if name is None else {"name": name, "arguments": value}
            envelope = read_envelope(whole, strict=options.strict, limits=options.limits)
        return ToolCall(
            id=draft.id,
            name=envelope.name,
            arguments=envelope.arguments,
            dialect=self._dialect,
            raw=raw,
            repaired=decoded.repaired or envelope.repaired,
            provider_id=envelope.provider_id or draft.provider_id,
        )

    def _accept(self, draft: Draft, call: ToolCall) -> None:
        self.count = True
        if not draft.announced:
            self._announce(draft, call.name)
        output = self._output
        output.calls.append(call)
        output.events += (Call(call, output.number()), Thinking(False, draft.id, output.number()))

    def _reject(self, draft: Draft, code: Code, message: str, raw: str) -> None:
        if self._announces:
            self.count = True
            number = self._output.number
            error = Error(code, message, call_id=draft.id, raw=raw, dialect=self._dialect, seq=number())
            if len(self._output.errors) <= self._options.limits.calls:  # a hostile stream has no end of them
                self._output.errors.append(error)
            self._output.events.append(error)
            self._output.add(Thinking, False, draft.id)
        else:
            self._output.add(Thinking, False, draft.id)
            self._output.add(Warning, code, message)
            self.stopped = self._show(raw)
