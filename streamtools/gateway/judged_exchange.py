"""An answer whose text a judge approves before the client sees any of it.

Whoever feeds the exchange asks the judge about what `asks` holds, piece by piece (`settle`), before more is read. A
piece that is open for too long is asked about as it is when more comes. Where text is refused, the answer is `over`: it
ends as one that was filtered, and no call of it leaves.
"""

from __future__ import annotations

from collections import deque
from time import monotonic

from streamtools.gateway.answer import OnEvent
from streamtools.gateway.client_requests import Client
from streamtools.gateway.exchange import Exchange
from streamtools.gateway.settings import Settings
from streamtools.stream.judging import Gate, Piece, decide, decide_now


class JudgedExchange(Exchange):
    """One request, and its answer; see the module."""

    judged = True

    def __init__(self, rewrite: Settings, client: Client, body: bytes, host: str | None, watch: OnEvent | None) -> None:
        assert rewrite.text_judge is not None
        self._judge = rewrite.text_judge
        self._gate: Gate = Gate(self._judge)
        self._timed: Piece | None = None  # the open piece, as it was seen last
        self._since = 0.0  # it has been open
        self._ending = self._ended = False
        super().__init__(rewrite, client, body, host, watch)

    @property
    def asks(self) -> deque[Piece]:
        """Pieces about which the judge has to be asked, in their order, before more is fed and behind `close`."""
        gate = self._gate
        if gate.open is not self._timed:
            self._timed, self._since = gate.open, monotonic()
        elif gate.open is not None and monotonic() - self._since >= self._judge.wait:
            gate.end_piece()
        return gate.ended

    def close(self, cause: str | None = None) -> bytes:
        return self._end_answers() if self._ending or self.over else super().close(cause)

    def give_up(self) -> None:
        """Ask about nothing more: what nobody has approved is not shown, and the answer ends with an error."""
        if self._answers:
            self._answers[0].give_up()

    def release(self) -> bytes:
        """Return what may leave, now that somebody has decided about a piece."""
        sent = self._keep(self._answers[0].release())
        if self._gate.drops:
            self.over = True
            self._gate.ended.clear()
        return sent

    async def settle(self, *, blocking: bool = False) -> bytes:
        parts = []
        while self.asks:
            piece = self.asks.popleft()
            piece.approved = decide_now(self._judge, piece) if blocking else await decide(self._judge, piece)
            parts.append(self.release())
        return b"".join(parts)

    def _end_answers(self) -> bytes:
        """Return the end of the answer, or what comes before it, if the judge has to be asked once more."""
        self._ending = True
        if self._gate.ended:
            return b""
        sent = b""
        if not self._ended:
            self._ended = True
            sent = self._keep(self._answers[0].close())
        return sent if self._gate.ended else sent + self._finish()
