"""Ask the next upstream when one fails, also in the middle of an answer. Sans-IO.

Before any text was sent, the next upstream gets the same request. After that it continues the text, by a prefill if its
server supports that, else by an instruction. A repetition is taken out. A call that was being written is discarded,
and so are complete native calls. For this reason, calls are sent at the end of the answer. `conversation.failover`
defines what counts as a failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from streamtools.conversation.continuation import Continuation
from streamtools.conversation.failover import AGAIN, GO_ON, failure_of
from streamtools.conversation.models.prefill import PREFILLS, Prefill
from streamtools.events import ProviderCompleted, SourceError, SourceEvent
from streamtools.gateway.settings import FallbackUpstream, Settings
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.logs import Logger
from streamtools.outputs.sse import to_json

log = Logger(__name__)


class AnswerFailover:
    """The upstreams of one answer, in the order in which they are asked."""

    def __init__(self, settings: Settings) -> None:
        self.fault: SourceError | None = None
        """The failure after which the next upstream is asked."""
        self.instructions: list[dict[str, Any]] = []
        """Messages that instruct the model to continue the answer."""
        self._settings = settings
        self._next = settings.circuits.order()
        self._at = self._next.pop(0)
        self._complete = False  # a complete answer arrived
        self._continuation: Continuation | None = None
        self._written = ""  # the text that the upstream continues

    @property
    def has_next(self) -> bool:
        return bool(self._next)

    @property
    def upstream(self) -> FallbackUpstream | None:
        """The upstream that is asked now; None for the first one."""
        return self._settings.fallbacks[self._at - 1] if self._at else None

    def address(self, request: UpstreamRequest) -> UpstreamRequest:
        """Return the request for the current upstream, with the text that it continues."""
        prefill = self._prefill
        if self._written.strip() and prefill is not None:
            body = prefill.write(msgspec.json.decode(request.body), self._written.rstrip())
            request = request._replace(body=to_json(body))
        return request._replace(at=self._at)

    def check_status(self, status: int) -> None:
        """Record a failure if another upstream can answer a request that failed with this status."""
        if self._next and (status in AGAIN or status >= 500):
            self.fault = SourceError(f"the upstream answered with status {status}", status=status)

    def read(self, events: Iterable[SourceEvent], *, may_continue: bool) -> list[SourceEvent]:
        """Return the new events of an answer, up to a failure that another upstream can follow."""
        read: list[SourceEvent] = []
        for event in events:
            if self.fault is not None:
                break
            if may_continue and self._next and not self._complete and (fault := failure_of(event)) is not None:
                self.fault = fault
                break
            if isinstance(event, ProviderCompleted):
                self._complete, self._written = True, ""
                self._settings.circuits.note(self._at, failed=failure_of(event) is not None)
            if self._continuation is not None:
                self._continuation.read(event, read)
            else:
                read.append(event)
        return read

    def take_pending_text(self) -> str:
        """Return text of the failed answer that was kept back as a possible repetition."""
        continuation, self._continuation = self._continuation, None
        return continuation.close() if continuation is not None else ""

    def move_on(self, written: str, *, begun: bool) -> None:
        """Move on to the next upstream, which continues the text `written`; `begun`: the client was sent text."""
        assert self.fault is not None
        fault, self.fault = self.fault, None
        self._settings.circuits.note(self._at, failed=True)
        failed, self._at = self._at, self._next.pop(0)
        log.warning("failed_over", upstream=failed, next=self._at, begun=begun, status=fault.status)
        self._written, self.instructions = written, []
        if not written.strip():
            return
        prefill = self._prefill
        how: Literal["echoed", "prefilled", "instructed"] = "instructed"
        if prefill is None:
            self.instructions = [{"role": "assistant", "content": written}, {"role": "user", "content": GO_ON}]
        else:
            how = "echoed" if prefill.echoes else "prefilled"
        self._continuation = Continuation(written, how)

    @property
    def _prefill(self) -> Prefill | None:
        return PREFILLS.get(self.upstream.prefill) if self.upstream is not None else None
