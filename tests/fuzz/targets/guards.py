"""Growth of the judge between the model's text and its reader."""

from __future__ import annotations

from collections.abc import Callable

from streamtools.events import Text
from streamtools.stream.text_judge import Gate, TextJudge
from tests.fuzz.target import pieces


def _use_gate(texts: list[str]) -> None:
    """Feed all texts to a gate before the judge approves the first piece."""
    gate = Gate(TextJudge(lambda text, before: True))
    for text in texts:
        gate.take([Text(text)])
    gate.end_piece()
    for piece in reversed(gate.unjudged):
        piece.approved = True
    gate.unjudged.clear()
    gate.take([])
    assert not len(gate)


USES: dict[str, Callable[[list[str]], None]] = {"judge": _use_gate}


def use(what: str, size: int, parts: list[str]) -> None:
    """Feed the joined parts to a stage in pieces of one size."""
    USES[what](pieces("".join(parts), size))
