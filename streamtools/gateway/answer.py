"""One answer on its way from the upstream to the client: source events in, the bytes of the client's format out.

The machine reads calls in text and says what is going on; the encoder writes it. In between stands what the client may
see of it: no call where it wants none, one where it wants one at most, arguments as they were before results and
history were neutralised. Sans-IO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from streamtools.calls import NATIVE, IdFactory, ToolCall
from streamtools.errors import Code
from streamtools.events import (
    Call,
    CallDelta,
    CallStart,
    Done,
    Error,
    Reasoning,
    SourceEvent,
    Start,
    StepStart,
    Text,
    UIEvent,
)
from streamtools.gateway.client_requests import Asked, Client
from streamtools.gateway.forced_calls import CallAlone
from streamtools.gateway.plan import WRITTEN
from streamtools.history.messages import fit
from streamtools.logs import Logger
from streamtools.machine.state_machine import StreamMachine
from streamtools.outputs.anthropic_events import AnthropicEncoder
from streamtools.outputs.encoder import Encoder
from streamtools.outputs.model_answers import BOUND, CompletionEncoder
from streamtools.outputs.openai_chunks import OpenAIEncoder
from streamtools.outputs.responses_events import ResponsesEncoder
from streamtools.outputs.whole_answers import write_fault
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralising import restore
from streamtools.sources.adapter import decode
from streamtools.sources.provider_terms import read_fault

if TYPE_CHECKING:
    from streamtools.stream.judging import Gate

_log = Logger(__name__)

_CUT = ("length", "content_filter")  # how the upstream says that it cut the answer off
_NO_FAULT = (Code.SUPERSEDED, Code.TOO_MANY_CALLS, Code.TOOL_CHOICE_VIOLATION)  # of a call's form

OnEvent: TypeAlias = Callable[[UIEvent], object]
"""Is told what goes on in an answer."""


@dataclass(eq=False, repr=False)
class ClientAnswer:
    """One answer: `feed` and `close` return bytes for the client, by the encoder that is made at the first of them.

    Arguments were neutralised in these `dialects`. `most` is how many calls the client wants at most; None is no bound.
    With `names_native`, no id of a native call may look like that of one in text; calls are then sent at the end.
    `alone` reads a call without a marker. `again` says of the malformed calls of an answer whether the model is asked
    once more, and then the answer goes on with that. Events wait at the `gate`, if there is one.
    """

    make_machine: Callable[[], StreamMachine]
    make_encoder: Callable[[], Encoder]
    dialects: tuple[Dialect, ...] = ()
    most: int | None = None
    shows_malformed: bool = True
    malformed_as_text: bool = False
    names_native: bool = False
    watch: OnEvent | None = None
    alone: CallAlone | None = None
    again: Callable[[list[Error]], bool] | None = None
    gate: Gate | None = None

    def __post_init__(self) -> None:
        self._machine = self.make_machine()
        self._feed = self._machine.feed
        self._encode: Callable[[UIEvent], bytes] | None = None  # of text, which passes as it is
        self._encoder: Encoder | None = None
        self._unjudged = False
        self._seen: dict[str, None] = {}  # calls that the client is sent
        self._begun: set[str] = set()  # those whose name it knows
        self._malformed: list[Error] = []
        self._before: list[Error] = []  # those of the answer before this one
        self._good: list[ToolCall] = []  # of all answers before this one
        self._retried = False
        self._shown: list[str] | None = None

    def feed(self, events: list[SourceEvent]) -> bytes:
        """Return what the client is sent for events of the upstream."""
        if self.alone is not None:
            events = self.alone.read(events)
        if len(events) == 1:  # as nearly always
            made = self._feed(events[0])
            if len(made) == 1 and self._encode is not None and type(event := made[0]) is Text:
                return self._encode(event)
        else:
            made = [event for each in events for event in self._feed(each)]
        return self._write(made)

    def passing(self, around: tuple[bytes, bytes, int] | None) -> Callable[[bytes], bytes | None] | None:
        """Return what writes a chunk of text that means nothing else, in one step, or returns None; until `feed` is
        called. `around` is what the adapter says of such chunks.
        """
        if around is None or self.alone is not None or self._encode is None:
            return None
        if not isinstance(encoder := self._encoder, CompletionEncoder):
            return None
        if (written := encoder.around) is None or (read := self._machine.passing) is None:
            return None
        head, tail, longest = around
        first, last = len(head), -len(tail)
        before, behind, space = written
        before, behind = before + b'"', b'"' + behind
        turn, prose = read
        keep, leaves = turn.deltas.append, prose.leaves

        def write(chunk: bytes) -> bytes | None:
            if not (chunk.startswith(head) and chunk.endswith(tail)) or len(chunk) > longest:
                return None
            try:
                text = chunk[first:last].decode()
            except UnicodeDecodeError:
                return None
            if leaves(text) is not None or not text.isprintable() or '"' in text or "\\" in text:
                return None
            body, room = text.rstrip(" "), turn.room - len(text)
            if not body or room < 0 or len(text) - len(body) > BOUND:
                return None
            turn.room = room
            keep(text)
            prose.last = text
            shown = space.held + body
            space.held = text[len(body) :]
            return before + shown.encode() + behind

        return write

    def close(self) -> bytes:
        """Return the end of the answer; nothing, if the model is asked again."""
        return self._write(self._machine.close())

    def give_up(self) -> None:
        """Show nothing more: there is nobody to ask about it."""
        if self.gate is not None:
            self.gate.ended.clear()
            self.gate.drops = self._unjudged = True

    def release(self) -> bytes:
        """Return what may leave of what has waited for a judge; where that refuses text, the answer is over."""
        written = self._write([])
        if self.gate is not None and self.gate.drops:
            self._machine.refuse()
        return written

    def tell(self, logprobs: dict[str, Any]) -> bytes:
        """Return what the client is sent for log probabilities."""
        if self._encoder is None:
            self._encoder = self.make_encoder()
        return self._encoder.write_logprobs(logprobs) if isinstance(self._encoder, OpenAIEncoder) else b""

    @property
    def stopped(self) -> bool:
        """Whether its text has ended the answer."""
        return self._machine.stopped

    def note_texts(self, shown: list[str]) -> None:
        """Add to `shown` what the client is sent of the text."""
        self._shown = shown

    def break_off(self, shown: str, name: str) -> str:
        """Go on with the answer of another upstream, behind what was shown; return the text with which that begins.

        Calls that had begun are none, as complete native ones are.
        """
        events, written = self._machine.go_on_behind(None if self.alone else shown, name)
        for event in events:
            if self.watch is not None:
                self.watch(event)
            if isinstance(event, Error) and event.call_id is not None:
                self._seen.pop(event.call_id, None)
                self._begun.discard(event.call_id)
        self._malformed = []
        if self.alone is not None:
            self.alone.begin()
        return written

    def begin_again(self) -> None:
        """Go on with another answer, of which nothing counts but its calls."""
        self._machine = self.make_machine()
        self._machine.reserve(self._good)
        self._feed = self._machine.feed
        self._retried, self._encode = True, None
        self._before, self._malformed = self._malformed, []

    def _write(self, events: list[UIEvent]) -> bytes:
        if self.gate is not None:
            events = self.gate.take(events)
        if not events:
            return b""
        if self._encoder is None:
            self._encoder = self.make_encoder()
            direct = not (self._retried or self._shown is not None or self.gate is not None)
            self._encode = self._encoder.encode if direct else None
        encode = self._encoder.encode
        if self.watch is not None:
            for event in events:
                if type(event) is not Text:
                    self.watch(event)
        if self._retried:
            events = [each for each in events if not isinstance(each, Start | StepStart | Text | Reasoning)]
        parts: list[bytes] = []
        for event in events:
            if type(event) is Text:
                if self._shown is not None:
                    self._shown.append(event.text)
                parts.append(encode(event))
            else:
                parts += [encode(each) for each in self._as_seen(event)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _as_seen(self, event: UIEvent) -> Iterable[UIEvent]:
        """Return what the client is told of an event."""
        match event:
            case CallStart(call_id):
                if not self._admit(call_id):
                    return ()
                self._begun.add(call_id)
            case CallDelta(call_id):
                return (event,) if call_id in self._begun else ()
            case Call(call):
                return (Call(self._restored(call), event.seq),) if self._admit(call.id) else ()
            case Error(call_id=None) if self._retried:  # what came before it still counts
                return ()
            case Error(call_id=str() as call_id, call=None):
                if not self._admit(call_id):
                    return ()
                if event.code not in _NO_FAULT:
                    self._malformed.append(event)
                    return () if self.again else (event,)
            case Done():
                return self._end(event)
        return (event,)

    def _admit(self, call_id: str) -> bool:
        if call_id in self._seen:
            return True
        if self.most is not None and len(self._seen) >= self.most:
            return False
        self._seen[call_id] = None
        return True

    def _restored(self, call: ToolCall) -> ToolCall:
        if self.names_native and call.dialect == NATIVE:
            call = msgspec.structs.replace(call, id=call.id.replace(WRITTEN, "", 1))  # one that the upstream gave none
        if not self.dialects:
            return call
        return msgspec.structs.replace(call, arguments=restore(call.arguments, self.dialects))

    def _end(self, done: Done) -> Iterable[UIEvent]:
        """Return how the answer ends, truthfully: a call that was cut is none, nor is one that nobody could read."""
        if self._unjudged:
            return (Error(Code.STREAM_INTERRUPTED, "the text was not judged in time"), done)
        if self.gate is not None and self.gate.drops and done.reason != "failed":
            return (msgspec.structs.replace(done, finish_reason="content_filter", pending=[]),)
        pending = [self._restored(call) for call in done.pending if call.id in self._seen]
        if self._good:  # nobody has asked for them again, though a model may write them again
            known = {call.fingerprint() for call in self._good}
            pending = [*self._good, *(call for call in pending if call.fingerprint() not in known)]
        if self._retried and done.reason == "failed":
            self._malformed = self._before
            done = msgspec.structs.replace(done, reason="finished", finish_reason="stop")
        elif self.again and done.reason == "finished" and self._malformed and self.again(self._malformed):
            self._good = pending
            return ()
        done = msgspec.structs.replace(done, pending=pending)
        if done.reason == "failed" or done.finish_reason in _CUT:
            return (done,)
        if self.again and self.malformed_as_text:
            return (*(Text(each.raw or "") for each in self._malformed), done)
        return (*(self._malformed if self.again else ()), *self._fault(bool(pending)), done)

    def _fault(self, others: bool) -> Iterable[UIEvent]:
        """Return the error with which an answer ends that has no call to be answered, though the model began one."""
        for each in self._malformed:
            shown = self.shows_malformed and each.call_id in self._begun
            if each.code is Code.TRUNCATED or not (shown or others):
                return (Error(each.code, f"the model wrote a call that cannot be read: {each.message}"),)
        return ()


def write_refusal(client: Client, status: int, held: bytes) -> bytes:
    """Return an upstream's refusal, as far as it has come, in the client's form."""
    try:
        value = decode(held)
    except ValueError:
        value = None
    _log.warning("upstream_refused", status=status)
    if client == "openai" and isinstance(value, dict) and "error" in value:
        return held
    hint = ": does the URL of the upstream end as it should, with /v1 mostly?" if status == 404 else ""
    return write_fault(client, status, read_fault(value).message or f"the upstream answered with status {status}{hint}")


def encoder_for(
    asked: Asked,
    identity: tuple[str | None, str | None],
    *,
    index: int,
    call_deltas: bool,
    new_id: IdFactory | None,
    now: Callable[[], int] | None,
) -> Encoder:
    """Return the encoder of one choice; `identity` are the upstream's names for the answer and for its model."""
    id, model = identity
    id = id or (new_id() if new_id else None)
    created = now() if now else None
    custom = frozenset(each.name for each in asked.tools if each.custom)
    known: dict[str, Any] = {"model": model or asked.model, "custom": custom, "call_deltas": call_deltas}
    if asked.client == "anthropic":
        return AnthropicEncoder(**known, id=id and f"msg_{fit(id)}")
    if asked.client == "responses":
        return ResponsesEncoder(**known, id=id and fit(id), created=created, request=asked.body)
    include_usage = not index and (asked.include_usage or not asked.streamed)
    return OpenAIEncoder(**known, id=id, created=created, include_usage=include_usage, index=index)
