"""Ask the next upstream when one fails, also in the middle of an answer. Sans-IO.

Before any text was sent, the next upstream gets the same request. After that it continues the text, by a prefill if its
server supports that, else by an instruction. A repetition is taken out. A call that was being written is discarded,
and so are complete native calls. For this reason, calls are sent at the end of the answer. `conversation.failover`
defines what counts as a failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from streamtools.conversation.models.prefill import PREFILLS, Prefill
from streamtools.conversation.shared_answer import AGAIN, GO_ON, SharedAnswer
from streamtools.events import SourceError, SourceEvent
from streamtools.gateway.settings import FallbackUpstream, Settings
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.logs import Logger
from streamtools.outputs.sse import to_json

log = Logger(__name__)


class AnswerFailover:
    """The upstreams of one answer, in the order in which they are asked."""

    def __init__(self, settings: Settings) -> None:
        self.instructions: list[dict[str, Any]] = []
        """Messages that instruct the model to continue the answer."""
        self._settings = settings
        self._answer = SharedAnswer(settings.circuits)
        self._written = ""  # the text that the upstream continues

    @property
    def has_failed(self) -> bool:
        """Whether the next upstream has to be asked."""
        return self._answer.fault is not None

    @property
    def has_next(self) -> bool:
        return self._answer.next is not None

    @property
    def upstream(self) -> FallbackUpstream | None:
        """The upstream that is asked now; None for the first one."""
        at = self._answer.at
        return self._settings.fallbacks[at - 1] if at else None

    def address(self, request: UpstreamRequest) -> UpstreamRequest:
        """Return the request for the current upstream, with the text that it continues."""
        prefill = self._prefill
        if self._written.strip() and prefill is not None and not self._answer.complete:
            body = prefill.write(msgspec.json.decode(request.body), self._written.rstrip())
            request = request._replace(body=to_json(body))
        return request._replace(at=self._answer.at)

    def check_status(self, status: int) -> None:
        """Record a failure if another upstream can answer a request that failed with this status."""
        if self.has_next and (status in AGAIN or status >= 500):
            self._answer.fault = SourceError(f"the upstream answered with status {status}", status=status)

    def read(self, events: Iterable[SourceEvent], *, may_continue: bool) -> list[SourceEvent]:
        """Return the new events of an answer, up to a failure that another upstream can follow."""
        return self._answer.read(events, may_fail=may_continue and self.has_next)

    def take_pending_text(self) -> list[SourceEvent]:
        """Return text of the failed answer that was kept back as a possible repetition."""
        return self._answer.take_pending_text()

    def move_on(self, written: str, *, begun: bool) -> None:
        """Move on to the next upstream, which continues the text `written`; `begun`: the client was sent text."""
        answer = self._answer
        failed, fault = answer.at, answer.fault
        self._settings.circuits.note(failed, failed=True)
        answer.move_on()
        status = fault.status if fault is not None else None
        log.warning("failed_over", upstream=failed, next=answer.at, begun=begun, status=status)
        self._written, self.instructions = written, []
        if not written.strip():
            return
        if self._prefill is None:
            self.instructions = [{"role": "assistant", "content": written}, {"role": "user", "content": GO_ON}]
        answer.continue_text(written, self._prefill)

    @property
    def _prefill(self) -> Prefill | None:
        return PREFILLS.get(self.upstream.prefill) if self.upstream is not None else None
