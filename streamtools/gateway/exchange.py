"""One request of a client's, and its answer: what the upstream is asked, and what the client is sent. Sans-IO.

Whoever has a network sends what `request` says, and hands over what comes. Status and headers for the client are in
`head` as soon as they are certain: where the answer is streamed, when the model begins to answer, else when it has. A
request that is refused has no `request`: its `head` is there at once, and `close` returns its body.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from streamtools.errors import Code
from streamtools.events import Error, SourceError, SourceEvent, TextDelta
from streamtools.gateway.addresses import JSON, Head, without_hop
from streamtools.gateway.answer import ClientAnswer, OnEvent, encoder_for, write_refusal
from streamtools.gateway.client_requests import Client, Refused, as_tools, model_in, read_request
from streamtools.gateway.forced_calls import REFUSES, CallAlone, ask_freely, keep_to_call
from streamtools.gateway.plan import WRITTEN, calls_in, make_plan, mode_of
from streamtools.gateway.settings import Settings
from streamtools.gateway.several_answers import ChoicePiece, Choices, read_choices, wanted
from streamtools.gateway.template_route import NO_TEMPLATE, LlamaCompletions, Template, template_of, unfit_for_template
from streamtools.gateway.upstream_requests import UpstreamRequest, write_request
from streamtools.machine.state_machine import StreamMachine
from streamtools.outputs.encoder import DONE, EVENT_STREAM, EVENT_STREAM_HEADERS
from streamtools.outputs.whole_answers import write_fault, write_whole
from streamtools.sources import adapter
from streamtools.sources.adapter import decode, interrupted
from streamtools.sources.detection import finished
from streamtools.sources.provider_terms import read_fault
from streamtools.stream.long_work import IN_THREAD

if TYPE_CHECKING:
    from streamtools.stream.judging import Gate

_FRAMES = 16
"""The longest answer, in frames of the longest: a client may be told all of it again in its last event."""

_EVENTS = (b"data:", b"event:", b":")
"""How a stream begins, which some upstreams send to whoever wants none, whatever they say that it is."""

_NO_JSON = SourceError("the upstream's answer is neither JSON nor a stream", Code.STREAM_INTERRUPTED, cause="no_json")


class Exchange:
    """One request and its answer; see the module."""

    judged = False
    """Somebody has to be asked before anything is shown: `settle` does, behind each `feed`."""
    over = False
    """Nothing more of the upstream's answer counts: it is left, and the exchange closed."""
    _gate: Gate | None = None

    request: UpstreamRequest | None = None
    """What is to be sent to the upstream; None while its answer is read, and at the end."""
    head: Head | None = None
    """Status and headers for the client, once they are certain."""
    may_fail = False
    """Another upstream is asked where this one fails."""
    _failed = _untouched = _whole = _asked_long = _preparing = _in_reasoning = False
    _tries = 0
    _take: Callable[[bytes], list[SourceEvent]] | None = None  # of a stream that is read like most
    _passing: Callable[[bytes], bytes | None] | None = None  # writes a chunk of mere text, most of the time
    _identity: tuple[str | None, str | None] | None = None  # what a whole answer calls itself
    _template: Template | None = None

    def __init__(self, rewrite: Settings, client: Client, body: bytes, host: str | None, watch: OnEvent | None) -> None:
        self.client: Client = client
        self._rewrite = rewrite
        self._asked_long = len(body) > IN_THREAD  # and would be written anew
        self._host = host
        self._watch = watch
        self._held = bytearray()  # the body of an answer that is read when it is whole
        self._parts: list[bytes] = []  # of the stream that becomes one body for the client
        self._answers: dict[int, ClientAnswer] = {}  # one of each choice
        self._more: list[dict[str, Any]] = []  # what is said when the model is asked again
        self._said: list[str] = []  # by the model, in this try
        self._left = _FRAMES * rewrite.limits.frame  # bytes that the upstream may send, in all tries
        speaks = "ollama" if rewrite.upstream == "ollama" else "openai"
        try:
            asked = read_request(client, body)
            for name in asked.dropped:
                rewrite.tell_once("option_dropped", client=client, option=name)
            plan = make_plan(mode_of(rewrite.mode, asked.model), rewrite.dialects, asked, host)
            if self.judged and wanted(asked.options.get("n")) > 1:
                raise Refused("an answer is judged here before it is sent: leave out `n`", "n")
            for name in ("logprobs", "top_logprobs"):
                if (self.judged or rewrite.text_rules) and asked.options.get(name):
                    raise Refused(
                        f"text is held back here, and log probabilities would tell it: leave out `{name}`", name
                    )
            self._asked, self._plan = keep_to_call(asked, plan, rewrite.upstream)
            rewritten = (self._plan.dialects, self._plan.taught, rewrite.text_rules, rewrite.fallbacks, self.judged)
            if client == speaks and not any(rewritten):
                self._untouched = True
                self.request = UpstreamRequest("chat/completions", body)
            else:
                self._template = template_of(rewrite.upstream) if self._plan.dialects else None
                if self._template is not None and (why := unfit_for_template(self._asked)) is not None:
                    self._leave_template(why)
                self.request = self._write()
                written = self.request.body
                self._neutralised = b"\xe2\x81\xa0" in written or b"\\u2060" in written
                self._tools = as_tools(self._asked.tools) if self._plan.dialects else ()
                self._answers[0] = self._make_answer(0)
        except (Refused, ValueError, RecursionError) as error:
            self._untouched = True
            taught = mode_of(rewrite.mode, model_in(body)) == "text"
            if client == speaks and not (taught or rewrite.dialects or rewrite.text_rules or self.judged):
                self.request = UpstreamRequest("chat/completions", body)  # it is for the upstream to say
                return
            refused = error if isinstance(error, Refused) else Refused(str(error))
            self.head = Head(refused.status, [("content-type", JSON)])
            self._held += write_fault(client, refused.status, refused.message, refused.param)
            self.request = None

    @property
    def asks(self) -> Collection[object]:
        """What the judge has to be asked about; behind `close`, which is called once more then."""
        return ()

    def settle(self, *, blocking: bool = False) -> Coroutine[Any, Any, bytes]:
        """Ask the judge about all that waits for it; return what may leave. Nothing waits for a client that blocks."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Ask about nothing more."""

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Take what the upstream's response begins with: its status, and its headers."""
        self.request = None
        if not self._tries:
            self._passed = without_hop(headers)
        if self._untouched:
            self.head = Head(status, self._passed)
            return
        declared = next((value for name, value in headers if name.lower() == "content-type"), "")
        self._passed = [each for each in self._passed if each[0].lower() != "content-type"]
        self._status = status
        self._failed = not 200 <= status < 300
        self._whole = self._preparing or self._failed or not self._asked.streamed or declared.startswith(JSON)
        if self._preparing:
            return
        self._adapter = adapter("ollama" if self._rewrite.upstream == "ollama" else "openai", self._rewrite.limits)
        if self._template is not None:
            self._adapter = LlamaCompletions(self._rewrite.limits)
        self._choices = Choices(self._rewrite.limits, self._wanted) if self._apart else None
        wait = self._apart or self._rewrite.ask_again or self._rewrite.fallbacks or self._gate is not None
        if self._asked.streamed and not (self._whole or wait):
            self._take, self._tell = self._adapter.feed, self._answers[0].feed
        if self._asked.streamed and not self._failed and self.head is None:
            own = [("content-type", EVENT_STREAM), *EVENT_STREAM_HEADERS.items()]
            names = {name for name, _ in own}
            self.head = Head(200, [*(each for each in self._passed if each[0].lower() not in names), *own])

    def feed(self, chunk: bytes) -> bytes:
        """Return what goes to the client for bytes of the upstream's body, without its content encoding."""
        if self._take is not None and self._left >= len(chunk):
            self._left -= len(chunk)
            if self._passing is not None and (written := self._passing(chunk)) is not None:
                return written
            events = self._take(chunk)
            written = self._tell(events) if events else b""
            plain = len(events) == 1 and type(events[0]) is TextDelta
            self._passing = self._answers[0].passing(self._adapter.around) if plain else None
            return written
        if self._untouched:
            return chunk
        self._left -= len(chunk)
        if self._left < 0:
            return b""
        if self._whole:
            if len(self._held) <= self._rewrite.limits.frame:
                self._held += chunk
            return b""
        return self._read_stream(chunk)

    def _read_stream(self, chunk: bytes) -> bytes:
        return self._send_all(self._choices.feed(chunk)) if self._choices else self._send(self._adapter.feed(chunk))

    def _end_stream(self, cause: str | None) -> bytes:
        return self._send_all(self._choices.close(cause)) if self._choices else self._send(self._adapter.close(cause))

    @property
    def is_long(self) -> bool:
        """Whether `close` may read, or write, too much at once for an event loop."""
        return self._asked_long or max(len(self._held), sum(map(len, self._parts))) > IN_THREAD

    def close(self, cause: str | None = None) -> bytes:
        """Return the end of the client's body; `cause` says why the upstream's broke off, if it did."""
        if self._untouched:
            held, self._held = bytes(self._held), bytearray()
            return held
        if self._preparing and self._prepared():
            return b""
        if self._left < 0:
            cause = "too_large"
        if self._failed and self.head is None and not self._tries:
            if self._plan.alone and self._status in REFUSES:
                return self._ask_freely()
            self.head = Head(self._status, [*self._passed, ("content-type", JSON)])
            return write_refusal(self.client, self._status, bytes(self._held))
        if self._failed:
            sent = self._send([read_fault(None).event()])  # when the model was asked again: what it said before counts
        elif self._whole:
            sent = self._read_whole(cause)
        else:
            sent = self._end_stream(cause)
        if (moved := self._move_on()) is not None:
            return sent + moved
        return sent + self._end_answers()

    def _end_answers(self) -> bytes:
        ends = b"".join(self._answers[index].close() for index in sorted(self._answers, reverse=True))
        if len(self._answers) > 1:  # the first comes last, because it has the usage
            ends = ends.replace(DONE, b"") + DONE
        sent = self._keep(ends)
        if self.request is not None:
            self._answers[0].begin_again()
            return sent
        return sent + self._finish()

    def _finish(self) -> bytes:
        """Return the body of an answer that is not streamed."""
        if self._asked.streamed:
            return b""
        status, body = write_whole(self.client, b"".join(self._parts))
        self.head = Head(status, [*self._passed, ("content-type", JSON)])
        return body

    def _write(self) -> UpstreamRequest:
        rewrite = self._rewrite
        self._chat = write_request(
            self._asked, self._plan, rewrite.upstream, examples=rewrite.few_shot, host=self._host, more=self._more
        )
        self._preparing = self._template is not None
        return self._chat if self._template is None else self._template.ask(self._chat.body)

    def _prepared(self) -> bool:
        """Ask the model itself, now that its server has told the prompt; return whether there is something to ask.

        A server that has no such endpoint is asked for chat completions.
        """
        assert self._template is not None
        self._preparing = False
        held, self._held = bytes(self._held), bytearray()
        if self._status in NO_TEMPLATE:
            self._leave_template(f"status {self._status}")
            self.request = self._chat
            return True
        made = None if self._failed else self._template.complete(held, self._chat.body, self._plan.dialects)
        if made is None:
            self._held += held
            self._failed, self._status = True, self._status if self._failed else 502
            return False
        self.request, self._in_reasoning = made
        self._answers = self._answers if self._tries else {0: self._make_answer(0)}
        return True

    def _leave_template(self, why: str) -> None:
        """Ask for chat completions instead, whose parser may eat calls: which is said once for each reason."""
        self._template = None
        self._rewrite.tell_once("template_not_used", upstream=self._rewrite.upstream, reason=why)

    def _ask_freely(self) -> bytes:
        """Ask without the form of a call, which the upstream cannot write by; return that there is nothing to send."""
        self._asked, self._plan = ask_freely(self._asked, self._plan)
        self._rewrite.tell_once("schema_not_used")
        self._held.clear()
        self.request = self._write()
        self._answers = {0: self._make_answer(0)}
        return b""

    def _ask_again(self, malformed: list[Error]) -> bool:
        """Have the model write malformed calls anew, unless it has been asked often enough; return whether it is."""
        if self._tries >= self._rewrite.ask_again:
            return False
        self._tries += 1
        faults = "; ".join(dict.fromkeys(each.message for each in malformed))
        wish = f"A call of yours cannot be read: {faults}. Write it once more, in the right form, and nothing else."
        self._more += [{"role": "assistant", "content": "".join(self._said)}, {"role": "user", "content": wish}]
        self._said.clear()
        self._held.clear()
        self.request = self._write()
        return True

    @property
    def _apart(self) -> bool:
        """Whether choices are read one by one: there are several, or they hold what no event does."""
        return self._rewrite.upstream != "ollama" and (self._wanted > 1 or self._asked.options.get("logprobs") is True)

    @property
    def _wanted(self) -> int:
        return wanted(self._asked.options.get("n"))

    def _make_answer(self, index: int) -> ClientAnswer:
        rewrite, asked, plan = self._rewrite, self._asked, self._plan
        taught = plan.taught is not None
        again = rewrite.ask_again > 0 and not self._apart
        at_the_end = again or bool(rewrite.fallbacks) or self._gate is not None  # calls leave then
        holds = self._neutralised or at_the_end  # calls, until they are whole
        most = 0 if asked.choice.mode == "none" and taught else None if asked.parallel else 1
        options = {
            "call_deltas": not holds,
            "in_reasoning": self._in_reasoning,
            "on_malformed": "error" if again else rewrite.on_malformed,
            "limits": rewrite.limits,
            "text_rules": rewrite.text_rules,
            "new_id": rewrite.new_id or self._new_id,
            **rewrite.parsing,
        }

        def machine() -> StreamMachine:
            made = StreamMachine(
                dialects=plan.dialects, tools=self._tools, execute="never", native_tool_calls=plan.native, **options
            )
            made.reserve(calls_in(asked.history))
            return made

        return ClientAnswer(
            machine,
            lambda: encoder_for(
                asked,
                self._identity or (self._choices or self._adapter).identity,
                index=index,
                call_deltas=plan.native is not None and not at_the_end,
                new_id=rewrite.new_answer_id,
                now=rewrite.now,
            ),
            dialects=plan.dialects if self._neutralised else (),
            most=most,
            shows_malformed=asked.client != "anthropic",
            malformed_as_text=rewrite.on_malformed == "text",
            names_native=plan.native is None,
            watch=self._watch,
            alone=CallAlone(plan.dialects) if plan.alone else None,
            again=self._ask_again if again else None,
            gate=self._gate,
        )

    def _new_id(self) -> str:
        begin = "toolu_" if self.client == "anthropic" else "call_"
        return begin + (WRITTEN if self._plan.dialects else "") + secrets.token_hex(9)

    def _send(self, events: list[SourceEvent], index: int = 0) -> bytes:
        if not events:
            return b""
        if index not in self._answers:
            self._answers[index] = self._make_answer(index)
        if self._rewrite.ask_again:
            self._said += (each.text for each in events if isinstance(each, TextDelta))
        return self._keep(self._answers[index].feed(events))

    def _send_all(self, pieces: Iterable[ChoicePiece]) -> bytes:
        """Return what is sent at once of several choices."""
        parts = []
        for index, events, logprobs in pieces:
            parts.append(self._send(events, index))
            if logprobs is not None and index in self._answers:
                parts.append(self._keep(self._answers[index].tell(logprobs)))
        return b"".join(parts)

    def _keep(self, written: bytes) -> bytes:
        """Return what is sent at once; of an answer that is not streamed nothing is."""
        if self._asked.streamed:
            return written
        self._parts.append(written)
        return b""

    def _read_whole(self, cause: str | None) -> bytes:
        """Return what is sent at once of an answer that came as one JSON body."""
        held = bytes(self._held)
        try:
            value = decode(held)
        except ValueError:
            if held.lstrip().startswith(_EVENTS) or self._rewrite.upstream == "ollama":
                return self._read_stream(held) + self._end_stream(cause)
            return self._send([interrupted(cause) if cause else _NO_JSON])
        if not isinstance(value, dict) or value.get("error"):
            return self._send([read_fault(value).event()])
        if self._template is not None:
            value = self._template.read(value)
        names = [name if isinstance(name := value.get(key), str) else None for key in ("id", "model")]
        self._identity = names[0], names[1]
        if self._apart:
            self._choices = None
            return self._send_all(read_choices(value, self._rewrite.limits, self._wanted))
        return self._send(finished(value, self._rewrite.limits))

    def _move_on(self) -> bytes | None:
        """Ask another upstream, if this one has failed; return what the client is sent meanwhile, or None."""
        return None
