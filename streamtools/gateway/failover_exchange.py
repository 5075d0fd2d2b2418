"""Several upstreams for one answer: where one fails, the next is asked, also in mid-stream. Sans-IO.

Before anything of an answer has left, the next upstream is asked the same. After that it goes on behind what the client
has: by a prefill, if its server is known to take one, or by an instruction, whose repetition is taken out. A call that
was being written is discarded whole, and native calls that were complete too; so calls leave at the end of the answer.
What fails is as in `conversation.failover`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from streamtools.conversation.continuation import Continuation
from streamtools.conversation.failover import AGAIN, GO_ON, failure_of
from streamtools.conversation.models.answer_format import PREFILLS
from streamtools.events import ProviderCompleted, SourceError, SourceEvent, TextDelta
from streamtools.gateway.answer import ClientAnswer, OnEvent
from streamtools.gateway.client_requests import Client
from streamtools.gateway.exchange import Exchange
from streamtools.gateway.settings import Settings
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.logs import Logger
from streamtools.outputs.encoder import to_json

log = Logger(__name__)


class FailoverExchange(Exchange):
    """One request, and its answer from the first upstream that gives it, or from several of them."""

    _fault: SourceError | None = None
    _complete = False  # the answer is: nothing can follow
    _continuation: Continuation | None = None
    _written = ""  # that the next goes on with
    _told = 0  # messages that tell a model to go on

    def __init__(self, rewrite: Settings, client: Client, body: bytes, host: str | None, watch: OnEvent | None) -> None:
        self._others = rewrite.circuits.order()
        self._at = self._others.pop(0)
        self._shown: list[str] = []
        super().__init__(rewrite, client, body, host, watch)
        self.may_fail = bool(self._others) and not self._untouched

    def begin(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        super().begin(status, headers)
        if self._failed and self._others and (status in AGAIN or status >= 500):
            self._fault = SourceError(f"the upstream answered with status {status}", status=status)

    def close(self, cause: str | None = None) -> bytes:
        if self._fault is not None and self._failed and not self._untouched:
            return self._move_on() or b""
        return super().close(cause)

    def _write(self) -> UpstreamRequest:
        upstream = self._rewrite.fallbacks[self._at - 1] if self._at else None
        if upstream is not None and upstream.model:
            self._asked = self._asked._replace(model=upstream.model)
        request = super()._write()
        how = PREFILLS.get(upstream.prefill) if upstream is not None else None
        if self._written.strip() and how is not None:
            body = how.write(msgspec.json.decode(request.body), self._written.rstrip())
            request = request._replace(body=to_json(body))
        return request._replace(at=self._at)

    def _send(self, events: Iterable[SourceEvent], index: int = 0) -> bytes:
        return super()._send(list(events) if self._apart else self._cut(events), index)

    def _cut(self, events: Iterable[SourceEvent]) -> list[SourceEvent]:
        """Return what is new of an answer, up to its fault."""
        out: list[SourceEvent] = []
        for event in events:
            if self._fault is not None:
                break
            may_follow = self._others and self._left >= 0 and not (self._complete or self._answers[0].stopped)
            if may_follow and (fault := failure_of(event)) is not None:
                self._fault = fault
                break
            if isinstance(event, ProviderCompleted):
                self._complete, self._written = True, ""
                self._rewrite.circuits.note(self._at, failed=failure_of(event) is not None)
            if self._continuation is not None:
                self._continuation.read(event, out)
            else:
                out.append(event)
        return out

    def _move_on(self) -> bytes | None:
        if self._fault is None:
            return None
        fault, self._fault = self._fault, None
        self._held.clear()
        sent, answer = b"", self._answers[0]
        if self._continuation is not None and (rest := self._continuation.close()):
            sent = super()._send([TextDelta(rest)])
        self._rewrite.circuits.note(self._at, failed=True)
        answer.note_texts(self._shown)
        self._written = answer.break_off("".join(self._shown), self._asked.model or "")
        at, self._at = self._at, self._others.pop(0)
        self.may_fail = bool(self._others)
        log.warning("failed_over", upstream=at, next=self._at, begun=bool(self._shown), status=fault.status)
        self._continuation = None
        del self._more[len(self._more) - self._told :]
        self._told = 0
        if self._written.strip():
            row = PREFILLS.get(self._rewrite.fallbacks[self._at - 1].prefill) if self._at else None
            if self._template is not None:
                self._leave_template("failover")
            if row is None:
                self._more += [{"role": "assistant", "content": self._written}, {"role": "user", "content": GO_ON}]
                self._told = 2
            how: Literal["echoed", "prefilled", "instructed"]
            how = "instructed" if row is None else "echoed" if row.echoes else "prefilled"
            self._continuation = Continuation(self._written, how)
        self.request = self._write()
        return sent

    def _make_answer(self, index: int) -> ClientAnswer:
        answer = super()._make_answer(index)
        answer.note_texts(self._shown)
        return answer
