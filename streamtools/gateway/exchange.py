"""Defines `Exchange`: one request of a client, the requests to the upstream, and the client's response. Sans-IO.

The upstream is the model server behind the gateway. A *driver* does the network I/O: it sends `request` to the
upstream, and feeds the upstream's response to the exchange. The exchange returns bytes for the client. `head` contains
the client's status and headers as soon as they are certain. They are certain when the upstream begins a response that
is forwarded unchanged, or a successful response to a request for a stream. For other responses, they are certain when
the answer is complete. If the gateway refuses the client's request, `request` is None from the start, `head` is set,
and `close` returns the body of the refusal.

`AnswerFailover` switches to the next upstream when an upstream fails, even in the middle of an answer. If the client
got no text yet, the next upstream gets the same request. Otherwise the next upstream must continue the text. If its
server supports a prefill, the request ends with the text. If not, the request contains an instruction to continue, and
text that the model repeats is removed. Incomplete calls and complete native calls of the failed upstream are discarded.
For this reason, the client gets calls only at the end of the answer. A failure is a lost connection, a timeout, an
answer that is incomplete or cannot be read, or the status 408, 429 or 5xx. An error inside an answer is a failure if
it has no status or one of these statuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from streamtools.conversation.failover_rules import CONTINUE_PROMPT, RETRYABLE_STATUSES, SharedAnswer
from streamtools.conversation.models.prefill_fields import PREFILLS, Prefill
from streamtools.errors import Code
from streamtools.events import SourceError, SourceEvent
from streamtools.gateway.answer import ClientAnswer, OnEvent, write_refusal
from streamtools.gateway.client_requests import Client, ClientRequest, InvalidRequest, read_body, read_request
from streamtools.gateway.http import JSON, ResponseHead, end_to_end
from streamtools.gateway.settings import FallbackUpstream, Settings
from streamtools.gateway.upstream_requests import (
    SCHEMA_REFUSED,
    CallPlan,
    UpstreamRequest,
    force_call,
    make_plan,
    mode_of,
    without_schema,
    write_request,
)
from streamtools.history import Message, Results, User
from streamtools.history.content import is_text
from streamtools.json_values import decode, with_texts
from streamtools.logs import Logger
from streamtools.outputs.non_streaming import error_body, join_stream
from streamtools.outputs.sse import EVENT_STREAM, EVENT_STREAM_HEADERS, to_json
from streamtools.sources import adapter
from streamtools.sources.adapter import interrupted
from streamtools.sources.finished import finished
from streamtools.sources.provider_terms import read_fault
from streamtools.stream.hiding import hide
from streamtools.stream.long_work import IN_THREAD

log = Logger(__name__)


class AnswerFailover:
    """Selects the upstreams for one answer, in order, and prepares their requests."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.answer = SharedAnswer(settings.circuits)
        """The answer to which the upstreams contribute. If its `fault` is set, the next upstream must get a request."""
        self._written = ""  # the text that the current upstream must continue

    @property
    def upstream(self) -> FallbackUpstream | None:
        """The current upstream if it is a fallback; None for the primary upstream."""
        index = self.answer.index  # 0 is the primary upstream
        return self._settings.fallbacks[index - 1] if index else None

    def address(self, request: UpstreamRequest) -> UpstreamRequest:
        """Return `request`, addressed to the current upstream.

        If the upstream must continue a text, the text is added as a prefill. For a server that does not support this,
        an instruction to continue is added.
        """
        if self._written.strip():
            body, prefill = msgspec.json.decode(request.body), self._prefill
            if prefill is not None:
                body = prefill.write(body, self._written.rstrip())
            else:
                body["messages"].append({"role": "assistant", "content": self._written})
                body["messages"].append({"role": "user", "content": CONTINUE_PROMPT})
            request = request._replace(body=to_json(body))
        return request._replace(at=self.answer.index)

    def check_status(self, status: int) -> None:
        """Set the `fault` of the answer if the error `status` may be temporary and another upstream is left."""
        if self.answer.next is not None and (status in RETRYABLE_STATUSES or status >= 500):
            self.answer.fault = SourceError(f"the upstream answered with status {status}", status=status)

    def move_on(self, written: str, *, begun: bool) -> None:
        """Make the next upstream the current one, and let it continue the text `written`.

        `begun` says whether the client already got text. This is only logged.
        """
        answer = self.answer
        failed, fault = answer.index, answer.fault
        self._settings.circuits.record(failed, failed=True)
        answer.move_on()
        status = fault.status if fault is not None else None
        log.warning("failed_over", upstream=failed, next=answer.index, begun=begun, status=status)
        self._written = written
        if written.strip():
            answer.continue_text(written, self._prefill)

    @property
    def _prefill(self) -> Prefill | None:
        return PREFILLS.get(self.upstream.prefill) if self.upstream is not None else None


_FRAMES_PER_ANSWER = 16
"""The maximum size of an answer, as a multiple of the maximum size of a frame (one event of a stream).

A single frame may contain a whole answer, because the last event of a stream may repeat it."""

_STREAM_BEGINNINGS = (b"data:", b"event:", b":")
"""The possible first bytes of a stream. Some upstreams send a stream although the request did not ask for one."""

_NOT_JSON = SourceError("the upstream's answer is neither JSON nor a stream", Code.STREAM_INTERRUPTED, cause="no_json")


class Exchange:
    """One request of a client and its answer. No input of the client or the upstream makes a method raise."""

    client: Client
    request: UpstreamRequest | None = None
    """The next request to send to the upstream. None while a response is being read, and after the last response."""
    head: ResponseHead | None = None
    """The status and headers for the client; None until they are certain."""
    has_fallback = False
    """Whether another upstream gets the request if the current upstream fails."""

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Begin to read a response of the upstream, with its status and headers."""

    def feed(self, chunk: bytes) -> bytes:
        """Read bytes of the upstream's body, after content decoding. Returns bytes for the client."""
        return chunk

    def close(self, cause: str | None = None) -> bytes:
        """End the upstream's response. Returns bytes for the client.

        The client's response is complete unless `request` is set again. `cause` is a word that says why the upstream's
        body is incomplete, such as `"transport"`. None means that the body is complete.
        """
        return b""

    def is_long(self) -> bool:
        """Return whether `close` may block the event loop for too long. The driver then calls it in a thread."""
        return False


class PassThrough(Exchange):
    """An exchange that forwards the request and the answer unchanged."""

    def __init__(self, client: Client, endpoint: str, body: bytes) -> None:
        self.client = client
        self.request = UpstreamRequest(endpoint, body)

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.request = None
        self.head = ResponseHead(status, end_to_end(headers))


class RefusedExchange(Exchange):
    """An exchange for a request that the gateway refuses. The upstream gets no request."""

    def __init__(self, client: Client, error: InvalidRequest) -> None:
        self.client = client
        self.head = ResponseHead(400, [("content-type", JSON)])
        self._body = error_body(client, 400, str(error), error.param)

    def close(self, cause: str | None = None) -> bytes:
        return self._body


class RewrittenExchange(Exchange):
    """An exchange that rewrites the request for the upstream, and converts the answer to the client's format.

    The parameter `request` is the client's request, and `request_size` is the size of its body in bytes. Raises
    `InvalidRequest` if the request cannot be written for this upstream.
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
        self._vault = None if settings.vault is None else settings.vault.copy()
        if self._vault is not None:
            history = hide(self._vault, request.history)
            request = request._replace(history=history, options=with_texts(request.options, self._vault.replace))
            if _has_files(request.history):
                settings.warn_once("request_has_files", advice="the vault searches only text and text files")
        self._client_request, self._plan = force_call(request, plan, settings.api)
        self._failover = AnswerFailover(settings)
        # The number of bytes that may still arrive in all responses to this request together.
        self._bytes_left = _FRAMES_PER_ANSWER * settings.limits.frame
        self._body = bytearray()  # the body of a response that is read as a whole
        self._identity: tuple[str | None, str | None] | None = None  # the id and model in `_body`
        self._parts: list[bytes] = []  # the events of the answer, if the client requested no stream
        self._ended = False
        self.request = self._write()
        written = self.request.body
        # Whether the request contains neutralized text. U+2060 is inserted into such text, so that the model makes no
        # call when it repeats the text.
        self._neutralized = b"\xe2\x81\xa0" in written or b"\\u2060" in written
        self._answer = self._make_answer()
        self.has_fallback = bool(settings.fallbacks)

    def is_long(self) -> bool:
        return self._is_long_request or max(len(self._body), sum(map(len, self._parts))) > IN_THREAD

    # The upstream's answer.

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.request = None
        settings, streamed = self._settings, self._client_request.streamed
        declared = next((value for name, value in headers if name.lower() == "content-type"), "")
        self._headers = [(name, value) for name, value in end_to_end(headers) if name.lower() != "content-type"]
        self._status, self._failed = status, not 200 <= status < 300  # `_failed`: the status is an error
        self._reads_whole = self._failed or not streamed or declared.startswith(JSON)
        self._adapter = adapter("openai", settings.limits)
        if streamed and not self._failed and self.head is None:
            added = [("content-type", EVENT_STREAM), *EVENT_STREAM_HEADERS.items()]
            names = {name for name, _ in added}
            self.head = ResponseHead(200, [*(header for header in self._headers if header[0] not in names), *added])
        if self._failed:
            self._failover.check_status(status)

    def feed(self, chunk: bytes) -> bytes:
        self._bytes_left -= len(chunk)
        if self._bytes_left < 0:
            return b""
        if self._reads_whole:
            if len(self._body) <= self._settings.limits.frame:
                self._body += chunk
            return b""
        return self._convert(self._adapter.feed(chunk))

    def close(self, cause: str | None = None) -> bytes:
        if self._ended:
            return self._end_answer()
        if self._failed and self._failover.answer.fault is not None:
            return self._fail_over()
        if self._bytes_left < 0:
            cause = "too_large"
        if self._failed and self.head is None:
            if self._plan.only_call and self._status in SCHEMA_REFUSED:
                self._drop_schema()
                return b""
            self.head = ResponseHead(self._status, [*self._headers, ("content-type", JSON)])
            return write_refusal(self.client, self._status, bytes(self._body))
        if self._failed:  # the client has the first part of the answer, which this upstream should have continued
            sent = self._convert([read_fault(None)])
        else:
            sent = self._read_whole(cause) if self._reads_whole else self._convert(self._adapter.close(cause))
        if self._failover.answer.fault is not None:
            return sent + self._fail_over()
        return sent + self._end_answer()

    def _read_whole(self, cause: str | None) -> bytes:
        """Read a whole body. Returns bytes for the client.

        The body may also be a stream or an error.
        """
        body, limits = bytes(self._body), self._settings.limits
        try:
            value = decode(body)
        except ValueError:
            if body.lstrip().startswith(_STREAM_BEGINNINGS):
                return self._convert(self._adapter.feed(body)) + self._convert(self._adapter.close(cause))
            return self._convert([interrupted(cause) if cause else _NOT_JSON])
        if not isinstance(value, dict) or value.get("error"):
            return self._convert([read_fault(value)])
        id, model = (name if isinstance(name := value.get(key), str) else None for key in ("id", "model"))
        self._identity = id, model
        return self._convert(finished(value, limits))

    # The client's answer.

    def _make_answer(self) -> ClientAnswer:
        return ClientAnswer(
            self._settings,
            self._client_request,
            self._plan,
            identity=lambda: self._identity or self._adapter.identity,
            neutralized=self._neutralized,
            watch=self._watch,
            vault=self._vault,
        )

    def _convert(self, events: list[SourceEvent]) -> bytes:
        """Convert events of the upstream to bytes for the client.

        If another upstream may avoid a failure, the conversion stops at the failure.
        """
        may_fail = self.has_fallback and self._bytes_left >= 0 and not self._answer.machine.stopped
        events = self._failover.answer.read(events, may_fail=may_fail)
        return self._stream_or_keep(self._answer.feed(events)) if events else b""

    def _stream_or_keep(self, written: bytes) -> bytes:
        """Return `written` if the client requested a stream. Otherwise keep it for the body, and return no bytes."""
        if self._client_request.streamed:
            return written
        self._parts.append(written)
        return b""

    def _end_answer(self) -> bytes:
        """End the answer. Returns its last bytes for the client.

        A second call returns the body of an unstreamed answer again, and no bytes for a streamed answer.
        """
        sent = b""
        if not self._ended:
            self._ended = True
            sent = self._stream_or_keep(self._answer.close())
            self._record_dialect()
        if self._client_request.streamed:
            return sent
        status, body = join_stream(self.client, b"".join(self._parts))
        self.head = ResponseHead(status, [*self._headers, ("content-type", JSON)])
        return sent + body

    def _record_dialect(self) -> None:
        plan, dialects = self._plan, {dialect.id: dialect for dialect in self._plan.dialects}
        used = dialects.get(self._answer.used_dialect)
        if used is not None and plan.taught is not None and not plan.only_call:
            self._settings.record_dialect(self._client_request.model, plan.taught, used)

    # Further requests.

    def _write(self) -> UpstreamRequest:
        """Return the request for the current upstream."""
        upstream = self._failover.upstream
        if upstream is not None and upstream.model:
            self._client_request = self._client_request._replace(model=upstream.model)
        return self._failover.address(write_request(self._client_request, self._plan, host=self._host))

    def _drop_schema(self) -> None:
        """Prepare a request without the schema of the forced call, because the upstream has refused the schema."""
        self._client_request, self._plan = without_schema(self._client_request, self._plan)
        self._settings.warn_once("schema_not_used")
        self._body.clear()
        self.request = self._write()
        self._answer = self._make_answer()

    def _fail_over(self) -> bytes:
        """Prepare the request to the next upstream. Returns the failed answer's buffered text for the client."""
        self._body.clear()
        pending = self._failover.answer.take_pending_text()
        sent = self._stream_or_keep(self._answer.feed(pending)) if pending else b""
        written = self._answer.continue_elsewhere(self._client_request.model or "")
        self._failover.move_on(written, begun=bool(self._answer.shown))
        self.has_fallback = self._failover.answer.next is not None
        self.request = self._write()
        return sent


@dataclass(frozen=True, kw_only=True)
class Rewrite(Settings):
    """The settings for rewriting requests and answers. `begin` creates an exchange for each request.

    `mode` says how models call tools:

    - `"text"`: The prompt teaches the first of the `dialects`, and calls are read in all of them. By default, the
      prompt teaches the dialect known for the model's name, or `tilde_fence`. Calls are then read in this dialect, in
      the other dialects known for the model's name, and in those of `dialects="auto"`.
    - `"native"`: The upstream gets the tools. Calls in text are read only if `dialects` are set.
    - `"auto"`: The upstream gets the tools. Calls in text are also read, by default in the dialects known for the
      model's name. If the upstream's host or the history shows that the model makes native calls, no calls are read in
      text.

    The client gets a malformed call as an error, or with `on_malformed="text"` as text. `api` names the kind of server.
    `text_rules` apply to the text of every answer. A copy of the `vault` replaces the values in each request,
    and restores them in the answer. If the upstream fails, the `fallbacks` get the request in order.
    `new_id` creates ids of calls, for tests. Raises ValueError for a value that is not allowed.
    """

    def begin(self, client: Client, body: bytes, *, host: str | None = None, watch: OnEvent | None = None) -> Exchange:
        """Return the exchange for one request, whose `body` has the format `client`. Only finders may raise.

        `host` is the host name of the upstream. `watch` is called with each event of the answer, except `text` events,
        before the client gets the event. An answer that is forwarded unchanged has no events.
        """
        reads_text = bool(self.text_rules or self.vault)
        model = ""
        try:
            fields = read_body(body)
            model = fields.get("model", "")
            request = read_request(client, fields)
            for name in request.dropped:
                self.warn_once("option_dropped", client=client, option=name)
            plan = make_plan(mode_of(self.mode, model), self.dialects, request, host)
            plan = plan._replace(used=self.used_dialects.get(model))
            if client == "openai" and not (plan.dialects or plan.taught or reads_text or self.fallbacks):
                return PassThrough(client, "chat/completions", body)
            _refuse_unsupported_options(request.body)
            return RewrittenExchange(self, request, plan, host=host, watch=watch, request_size=len(body))
        except (InvalidRequest, ValueError, RecursionError) as error:
            rewrites = mode_of(self.mode, model) == "text" or self.dialects or reads_text or self.fallbacks
            if client == "openai" and not rewrites:  # the upstream reports the error
                return PassThrough(client, "chat/completions", body)
            return RefusedExchange(client, error if isinstance(error, InvalidRequest) else InvalidRequest(str(error)))


def _has_files(history: Sequence[Message]) -> bool:
    """Return whether a message of the user or a result has a part that is not a text."""
    results = [result.parts for message in history if isinstance(message, Results) for result in message.results]
    contents = [*results, *(message.content for message in history if isinstance(message, User))]
    return any(not is_text(part) for parts in contents if not isinstance(parts, str) for part in parts)


def _refuse_unsupported_options(body: Mapping[str, Any]) -> None:
    """Raise `InvalidRequest` if the body has an option that a rewritten answer does not support."""
    n, include = body.get("n"), body.get("include")
    if isinstance(n, int) and n > 1:
        raise InvalidRequest(f"`n` must be 1 if answers are rewritten, got {n}. Send several requests.", "n")
    names = [name for name in ("logprobs", "top_logprobs") if body.get(name)]
    if isinstance(include, list) and "message.output_text.logprobs" in include:
        names.append("include")
    if names:
        message = "Rewritten answers have no log probabilities. Do not request them, or call the upstream directly."
        raise InvalidRequest(message, names[0])
