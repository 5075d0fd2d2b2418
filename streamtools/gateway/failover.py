"""Switches to the next upstream when an upstream fails, even in the middle of an answer. Sans-IO.

If the client got no text yet, the next upstream gets the same request. Otherwise the next upstream must continue the
text. If its server supports a prefill, the request ends with the text. If not, the request contains an instruction to
continue, and text that the model repeats is removed. Incomplete calls and complete native calls of the failed upstream
are discarded. For this reason, the client gets calls only at the end of the answer. A failure is a lost connection, a
timeout, an incomplete stream, an error in the stream, or the status 408, 429 or 5xx.
"""

from __future__ import annotations

from typing import Any

import msgspec

from streamtools.conversation.failover_rules import CONTINUE_PROMPT, RETRYABLE_STATUSES, SharedAnswer
from streamtools.conversation.models.prefill import PREFILLS, Prefill
from streamtools.events import SourceError
from streamtools.gateway.settings import FallbackUpstream, Settings
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.logs import Logger
from streamtools.outputs.sse import to_json

log = Logger(__name__)


class AnswerFailover:
    """Selects the upstreams for one answer, in order, and prepares their requests."""

    def __init__(self, settings: Settings) -> None:
        self.instructions: list[dict[str, Any]] = []
        """Messages at the end of the request that instruct the model to continue. Empty if they are not needed."""
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
        """Return `request` addressed to the current upstream, with the text to continue as a prefill if possible."""
        prefill = self._prefill
        if self._written.strip() and prefill is not None and not self.answer.complete:
            body = prefill.write(msgspec.json.decode(request.body), self._written.rstrip())
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
        self._written, self.instructions = written, []
        if not written.strip():
            return
        if self._prefill is None:
            self.instructions = [
                {"role": "assistant", "content": written},
                {"role": "user", "content": CONTINUE_PROMPT},
            ]
        answer.continue_text(written, self._prefill)

    @property
    def _prefill(self) -> Prefill | None:
        return PREFILLS.get(self.upstream.prefill) if self.upstream is not None else None
