"""One request of a client and its answer: what the upstream is sent, and what the client is sent. Sans-IO.

A driver with a network sends `request` and feeds the response. `head` holds status and headers for the client as soon
as they are certain. For a streamed answer, that is when the model begins to answer, else when the answer is complete. A
refused request has no `request`: its `head` is set from the start, and `close` returns its body.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamtools.errors import Code
from streamtools.events import Error, SourceError, SourceEvent, TextDelta
from streamtools.gateway.answer import ClientAnswer, ForcedCallReader, OnEvent, encoder_for, write_refusal
from streamtools.gateway.client_requests import Client, ClientRequest, InvalidRequest, as_tools, model_in, read_request
from streamtools.gateway.failover import AnswerFailover
from streamtools.gateway.http import JSON, ResponseHead, end_to_end
from streamtools.gateway.judge import AnswerJudge
from streamtools.gateway.settings import Settings
from streamtools.gateway.upstream_requests import (
    SCHEMA_REFUSED,
    TEXT_CALL_ID,
    CallPlan,
    UpstreamRequest,
    calls_in,
    force_call,
    make_plan,
    mode_of,
    without_schema,
    write_request,
)
from streamtools.machine.state_machine import StreamMachine
from streamtools.outputs.non_streaming import error_body, join_stream
from streamtools.outputs.sse import EVENT_STREAM, EVENT_STREAM_HEADERS
from streamtools.sources import adapter
from streamtools.sources.adapter import decode, interrupted
from streamtools.sources.finished import finished
from streamtools.sources.provider_terms import read_fault
from streamtools.stream.long_work import IN_THREAD

_FRAMES_PER_ANSWER = 16
"""Limit of an answer, in frames of the longest size. The last event of a stream may repeat the whole answer."""

_STREAM_BEGINNINGS = (b"data:", b"event:", b":")
"""First bytes of a stream. Some upstreams stream although no stream was requested."""

_NOT_JSON = SourceError("the upstream's answer is neither JSON nor a stream", Code.STREAM_INTERRUPTED, cause="no_json")


class Exchange:
    """One request and its answer. It raises nothing, whatever client and upstream send."""

    client: Client
    request: UpstreamRequest | None = None
    """The next request for the upstream; None while its answer is read, and at the end."""
    head: ResponseHead | None = None
    """Status and headers for the client, once they are certain."""
    judge: AnswerJudge | None = None
    """Approves the text. The driver lets it decide after each `feed` and `close`, and then calls `close` again."""
    complete = False
    """Whether the rest of the upstream's answer is ignored. The driver then stops reading it."""
    may_fail = False
    """Whether another upstream is asked if this one fails."""

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Read status and headers of the upstream's response."""

    def feed(self, chunk: bytes) -> bytes:
        """Return the client's bytes for bytes of the upstream's body, without its content encoding."""
        return chunk

    def close(self, cause: str | None = None) -> bytes:
        """Return the end of the client's body. `cause` is a word if the upstream's body broke off."""
        return b""

    def is_long(self) -> bool:
        """Return whether `close` may read or write too much for an event loop."""
        return False


class PassThrough(Exchange):
    """A request and an answer that stay as they are."""

    def __init__(self, client: Client, endpoint: str, body: bytes) -> None:
        self.client = client
        self.request = UpstreamRequest(endpoint, body)

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.request = None
        self.head = ResponseHead(status, end_to_end(headers))


class RefusedExchange(Exchange):
    """A request that is refused without asking the upstream."""

    def __init__(self, client: Client, error: InvalidRequest) -> None:
        self.client = client
        self.head = ResponseHead(400, [("content-type", JSON)])
        self._body = error_body(client, 400, error.message, error.param)

    def close(self, cause: str | None = None) -> bytes:
        return self._body


class RewrittenExchange(Exchange):
    """A request that is rewritten, and its answer in the client's form.

    `request` is the client's, and `request_size` the bytes of its body. Raises `InvalidRequest` for a request that this
    upstream cannot be sent.
    """

    def __init__(
        self,
        settings: Settings,
        request: ClientRequest,
        plan: CallPlan,
        *,
        host: str | None,
        watch: OnEvent | None,
        request_size: int,
    ) -> None:
        self.client = request.client
        self._settings = settings
        self._host = host
        self._watch = watch
        self._is_long_request = request_size > IN_THREAD
        self._client_request, self._plan = force_call(request, plan, settings.upstream)
        self._failover = AnswerFailover(settings) if settings.fallbacks else None
        self.judge = None if settings.text_judge is None else AnswerJudge(settings.text_judge, self._release)
        self._tries = 0  # how often the model was asked again
        self._more: list[dict[str, Any]] = []  # messages after the history
        self._said: list[str] = []  # text of the model in this try
        self._bytes_left = _FRAMES_PER_ANSWER * settings.limits.frame  # for all tries
        self._body = bytearray()  # of the upstream, if it is read as a whole
        self._identity: tuple[str | None, str | None] | None = None  # the id and model in such a body
        self._parts: list[bytes] = []  # of the stream that becomes one body for the client
        self._upstream_ended = self._answer_closed = False
        self.request = self._write()
        written = self.request.body
        self._neutralised = b"\xe2\x81\xa0" in written or b"\\u2060" in written
        self._tools = as_tools(self._client_request.tools) if self._plan.dialects else ()
        self._answer = self._make_answer()
        self.may_fail = self._failover is not None and self._failover.has_next

    def is_long(self) -> bool:
        return self._is_long_request or max(len(self._body), sum(map(len, self._parts))) > IN_THREAD

    # The upstream's answer.

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.request = None
        settings, streamed = self._settings, self._client_request.streamed
        declared = next((value for name, value in headers if name.lower() == "content-type"), "")
        if not self._tries:
            self._headers = [(name, value) for name, value in end_to_end(headers) if name.lower() != "content-type"]
        self._status, self._failed = status, not 200 <= status < 300
        self._reads_whole = self._failed or not streamed or declared.startswith(JSON)
        self._adapter = adapter("ollama" if settings.upstream == "ollama" else "openai", settings.limits)
        if streamed and not self._failed and self.head is None:
            own = [("content-type", EVENT_STREAM), *EVENT_STREAM_HEADERS.items()]
            names = {name for name, _ in own}
            self.head = ResponseHead(200, [*(header for header in self._headers if header[0] not in names), *own])
        if self._failed and self._failover is not None:
            self._failover.check_status(status)

    def feed(self, chunk: bytes) -> bytes:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            return b""
        if self._reads_whole:
            if len(self._body) <= self._settings.limits.frame:
                self._body += chunk
            return b""
        return self._send(self._adapter.feed(chunk))

    def close(self, cause: str | None = None) -> bytes:
        if self._upstream_ended or self.complete:
            return self._end_answer()
        if self._failed and self._failover is not None and self._failover.has_failed:
            return self._fail_over(self._failover)
        if self._bytes_left < 0:
            cause = "too_large"
        if self._failed and self.head is None and not self._tries:
            if self._plan.only_call and self._status in SCHEMA_REFUSED:
                self._drop_schema()
                return b""
            self.head = ResponseHead(self._status, [*self._headers, ("content-type", JSON)])
            return write_refusal(self.client, self._status, bytes(self._body))
        if self._failed:  # the model was asked again, and what it said before counts
            sent = self._send([read_fault(None).event()])
        else:
            sent = self._read_whole(cause) if self._reads_whole else self._send(self._adapter.close(cause))
        if self._failover is not None and self._failover.has_failed:
            return sent + self._fail_over(self._failover)
        self._upstream_ended = True
        return sent + self._end_answer()

    def _read_whole(self, cause: str | None) -> bytes:
        """Return what is sent for an answer that arrived as one body."""
        body, limits = bytes(self._body), self._settings.limits
        try:
            value = decode(body)
        except ValueError:
            if body.lstrip().startswith(_STREAM_BEGINNINGS) or self._settings.upstream == "ollama":
                return self._send(self._adapter.feed(body)) + self._send(self._adapter.close(cause))
            return self._send([interrupted(cause) if cause else _NOT_JSON])
        if not isinstance(value, dict) or value.get("error"):
            return self._send([read_fault(value).event()])
        id, model = (name if isinstance(name := value.get(key), str) else None for key in ("id", "model"))
        self._identity = id, model
        return self._send(finished(value, limits))

    # The client's answer.

    def _make_answer(self) -> ClientAnswer:
        settings, request, plan = self._settings, self._client_request, self._plan
        asks_again = settings.ask_again > 0
        calls_at_end = asks_again or self._failover is not None or self.judge is not None
        calls_whole = self._neutralised or calls_at_end
        drops_calls = request.choice.mode == "none" and plan.taught is not None
        options = {
            "call_deltas": not calls_whole,
            "on_malformed": "error" if asks_again else settings.on_malformed,
            "limits": settings.limits,
            "text_rules": settings.text_rules,
            "new_id": settings.new_id or self._new_id,
            **settings.parsing,
        }

        def make_machine() -> StreamMachine:
            machine = StreamMachine(
                dialects=plan.dialects, tools=self._tools, execute="never", native_tool_calls=plan.native, **options
            )
            machine.reserve(calls_in(request.history))
            return machine

        return ClientAnswer(
            make_machine,
            lambda: encoder_for(
                request,
                self._identity or self._adapter.identity,
                call_deltas=plan.native is not None and not calls_at_end,
                new_id=settings.new_answer_id,
                now=settings.now,
            ),
            dialects=plan.dialects if self._neutralised else (),
            max_calls=0 if drops_calls else None if request.parallel else 1,
            shows_malformed=self.client != "anthropic",
            malformed_as_text=settings.on_malformed == "text",
            checks_native_ids=plan.native is None,
            watch=self._watch,
            forced_call=ForcedCallReader(plan.dialects) if plan.only_call else None,
            ask_again=self._ask_again if asks_again else None,
            judge=self.judge,
        )

    def _new_id(self) -> str:
        prefix = "toolu_" if self.client == "anthropic" else "call_"
        return prefix + (TEXT_CALL_ID if self._plan.dialects else "") + secrets.token_hex(9)

    def _send(self, events: list[SourceEvent]) -> bytes:
        if self._failover is not None:
            may_continue = self._bytes_left >= 0 and not self._answer.stopped
            events = self._failover.read(events, may_continue=may_continue)
        return self._answer_events(events)

    def _answer_events(self, events: list[SourceEvent]) -> bytes:
        if not events:
            return b""
        if self._settings.ask_again:
            self._said += (event.text for event in events if isinstance(event, TextDelta))
        return self._stream_or_keep(self._answer.feed(events))

    def _stream_or_keep(self, written: bytes) -> bytes:
        """Return bytes that are sent now; none if the client wants one body."""
        if self._client_request.streamed:
            return written
        self._parts.append(written)
        return b""

    def _release(self) -> bytes:
        """Return what may be sent after a decision of the judge."""
        sent = self._stream_or_keep(self._answer.release())
        if self.judge is not None and self.judge.gate.drops:
            self.complete = True
            self.judge.gate.ended.clear()
        return sent

    def _end_answer(self) -> bytes:
        """Return the end of the answer, or the part of it before the next decision of the judge."""
        if self.judge is not None and self.judge.gate.ended:
            return b""
        sent = b""
        if not self._answer_closed:
            self._answer_closed = True
            sent = self._stream_or_keep(self._answer.close())
            if self.judge is not None and self.judge.gate.ended:
                return sent
        if self.request is not None:  # the model is asked again
            self._upstream_ended = self._answer_closed = False
            self._answer.continue_with_calls()
            return sent
        if self._client_request.streamed:
            return sent
        status, body = join_stream(self.client, b"".join(self._parts))
        self.head = ResponseHead(status, [*self._headers, ("content-type", JSON)])
        return sent + body

    # Further requests.

    def _write(self) -> UpstreamRequest:
        upstream = self._failover.upstream if self._failover is not None else None
        if upstream is not None and upstream.model:
            self._client_request = self._client_request._replace(model=upstream.model)
        settings = self._settings
        request = write_request(
            self._client_request,
            self._plan,
            settings.upstream,
            examples=settings.few_shot,
            host=self._host,
            more=self._more,
        )
        return request if self._failover is None else self._failover.address(request)

    def _drop_schema(self) -> None:
        """Ask without the schema of a forced call, which the upstream refuses."""
        self._client_request, self._plan = without_schema(self._client_request, self._plan)
        self._settings.warn_once("schema_not_used")
        self._body.clear()
        self.request = self._write()
        self._answer = self._make_answer()

    def _ask_again(self, malformed: list[Error]) -> bool:
        """Ask the model to repeat malformed calls. Returns False if it was asked often enough."""
        if self._tries >= self._settings.ask_again:
            return False
        self._tries += 1
        faults = "; ".join(dict.fromkeys(error.message for error in malformed))
        wish = f"A call of yours cannot be read: {faults}. Write it once more, in the right form, and nothing else."
        self._more += [{"role": "assistant", "content": "".join(self._said)}, {"role": "user", "content": wish}]
        self._said.clear()
        self._body.clear()
        self.request = self._write()
        return True

    def _fail_over(self, failover: AnswerFailover) -> bytes:
        """Ask the next upstream. Returns pending text of the failed answer."""
        self._body.clear()
        sent = self._answer_events(failover.take_pending_text())
        written = self._answer.continue_elsewhere(self._client_request.model or "")
        self._more = [message for message in self._more if message not in failover.instructions]
        failover.move_on(written, begun=bool(self._answer.shown))
        self.may_fail = failover.has_next
        self._more += failover.instructions
        self.request = self._write()
        return sent


@dataclass(frozen=True, kw_only=True)
class Rewrite(Settings):
    """Settings of a rewrite, which begins an exchange for each request.

    `mode` says how models call tools. `"text"` teaches the first of the `dialects` and reads all of them. Without
    `dialects`, it teaches what models of that name write, or `tilde_fence`, and reads `"auto"`. `few_shot` adds
    examples. `"native"` sends the tools to the upstream, and reads calls in text only if `dialects` are given. `"auto"`
    is `"native"` with the known dialects of the model's name, unless the host or the history shows native calls.

    `ask_again` is how often the model is asked to repeat a malformed call. After that, the call reaches the client as
    text or as an error (`on_malformed`). Calls are then sent when they are complete. `upstream` names the upstream's
    API. `text_rules` apply to the text of every answer, and a `text_judge` approves it before it is sent. `fallbacks`
    are asked when the upstream fails. `new_id` (of calls), `new_answer_id` and `now` (seconds since 1970) make answers
    reproducible. Raises ValueError for a value that is not allowed.
    """

    def begin(self, client: Client, body: bytes, *, host: str | None = None, watch: OnEvent | None = None) -> Exchange:
        """Return the exchange of one request in a client's format. It never raises.

        `host` is the upstream's. `watch` is called with the events of the answer, except its text, before the client
        sees them.
        """
        same_api = client == "openai" and self.upstream != "ollama"
        reads_text = bool(self.text_rules) or self.text_judge is not None
        try:
            request = read_request(client, body)
            for name in request.dropped:
                self.warn_once("option_dropped", client=client, option=name)
            plan = make_plan(mode_of(self.mode, request.model), self.dialects, request, host)
            if same_api and not (plan.dialects or plan.taught or reads_text or self.fallbacks):
                return PassThrough(client, "chat/completions", body)
            refused = _unsupported_option(request.body)
            if refused is None:
                return RewrittenExchange(self, request, plan, host=host, watch=watch, request_size=len(body))
        except (InvalidRequest, ValueError, RecursionError) as error:
            taught = mode_of(self.mode, model_in(body)) == "text"
            if same_api and not (taught or self.dialects or reads_text):  # the upstream answers it
                return PassThrough(client, "chat/completions", body)
            refused = error if isinstance(error, InvalidRequest) else InvalidRequest(str(error))
        return RefusedExchange(client, refused)


def _unsupported_option(body: Mapping[str, Any]) -> InvalidRequest | None:
    """Return the error for an option that a rewritten answer cannot honor."""
    n, include = body.get("n"), body.get("include")
    if isinstance(n, int) and n > 1:
        return InvalidRequest(f"`n` must be 1 where answers are rewritten, got {n}. Send several requests.", "n")
    names = [name for name in ("logprobs", "top_logprobs") if body.get(name)]
    if isinstance(include, list) and "message.output_text.logprobs" in include:
        names.append("include")
    if names:
        message = "Rewritten answers have no log probabilities. Leave them out, or ask the upstream directly."
        return InvalidRequest(message, names[0])
    return None
