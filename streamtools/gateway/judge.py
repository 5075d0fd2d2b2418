"""Buffers the text of an answer until a judge approves it.

The text is divided into pieces. The driver of an exchange calls `decide` after each `feed` and after `close`, and the
judge then decides about the complete pieces. If a piece is incomplete for longer than `TextJudge.wait`, it is judged in
its current form when more of the answer arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

from streamtools.stream.text_judge import Gate, Piece, TextJudge, decide, decide_now


class AnswerJudge:
    """Lets a judge decide about the text of one answer. `gate` buffers the events that wait for a decision.

    `release` is called after each decision. It returns the bytes that may be sent to the client.
    """

    def __init__(self, judge: TextJudge, release: Callable[[], bytes]) -> None:
        self.gate = Gate(judge)
        self.timed_out = False
        """Whether the answer ended before all of its text was judged."""
        self._judge = judge
        self._release = release
        self._open: Piece | None = None  # the incomplete piece
        self._open_since = 0.0  # the time at which it began

    @property
    def pieces(self) -> deque[Piece]:
        """The pieces of text about which the judge must decide before the next `feed`, in order."""
        gate = self.gate
        if gate.open is not self._open:
            self._open, self._open_since = gate.open, monotonic()
        elif gate.open is not None and monotonic() - self._open_since >= self._judge.wait:
            gate.end_piece()
        return gate.unjudged

    async def decide(self, *, blocking: bool = False) -> bytes:
        """Let the judge decide about all waiting pieces. Returns bytes for the client.

        With `blocking=True`, no coroutine is awaited.
        """
        parts = []
        while self.pieces:
            piece = self.pieces.popleft()
            piece.approved = decide_now(self._judge, piece) if blocking else await decide(self._judge, piece)
            parts.append(self._release())
        return b"".join(parts)

    def give_up(self) -> None:
        """Drop the text that waits for a decision, so that the answer ends with an error."""
        self.gate.unjudged.clear()
        self.gate.drops = self.timed_out = True
