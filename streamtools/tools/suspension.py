"""A run that waits for people: its open questions as JSON, to be kept until somebody answers them.

Where nobody is there to answer at once, the run ends, and what it waits for is written down: the calls as they were
made, what is asked about each, and to which run they belong. Another process can take it up from there. It must be kept
where nobody else writes: who can change a call there can change what runs.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from streamtools.calls import ToolCall
from streamtools.tools.decisions import Question


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What one run has left open. `run_id` is that of the run in which the calls were made."""

    run_id: str
    questions: list[Question]
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        if len({call.id for call in self.calls}) < len(self.questions):
            raise ValueError("there are two questions about one call")

    @property
    def calls(self) -> list[ToolCall]:
        """The calls that are asked about, in their order."""
        return [question.call for question in self.questions]

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, data: str | bytes) -> Suspension:
        """Return what `to_json` wrote. Raises ValueError for anything else."""
        try:
            return msgspec.json.decode(data, type=cls)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
