"""Several answers to one request (`n`), and the log probabilities of tokens, which no source event holds. Sans-IO.

An adapter reads the first choice of a chunk. Here each choice goes to an adapter of its own, as if it were the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from streamtools.events import SourceEvent
from streamtools.gateway.client_requests import object_in
from streamtools.limits import Limits
from streamtools.sources import FrameAdapter, SSEDecoder, adapter
from streamtools.sources.detection import finished
from streamtools.sources.frames import Frame, Framed

_MOST = 128  # choices of one answer, which is what OpenAI allows

Body = dict[str, Any]


class ChoicePiece(NamedTuple):
    """What came of one choice."""

    choice: int
    events: list[SourceEvent]
    logprobs: Body | None = None


def wanted(n: object) -> int:
    """Return how many choices a client has asked for, who may have said anything; more are not read."""
    return min(n, _MOST) if isinstance(n, int) and n > 1 else 1


class Choices:
    """The stream of `most` choices. What is about none of them counts for each, and usage for the first."""

    def __init__(self, limits: Limits, most: int) -> None:
        self._most = most
        self._frames = SSEDecoder(limits.frame)
        self._limits = limits
        self._readers: dict[int, FrameAdapter] = {}
        self._reader(0)

    @property
    def identity(self) -> tuple[str | None, str | None]:
        """The provider's names for the answer and for its model."""
        return self._readers[0].identity

    def feed(self, chunk: bytes) -> Iterator[ChoicePiece]:
        return self._read(self._frames.feed(chunk))

    def close(self, cause: str | None = None) -> Iterator[ChoicePiece]:
        """Yield what the end of the body brings; `cause` says why it broke off, if it did."""
        yield from self._read(self._frames.close())
        for index, reader in self._readers.items():
            yield ChoicePiece(index, reader.close(cause))

    def _read(self, frames: Iterable[Framed]) -> Iterator[ChoicePiece]:
        for frame in frames:
            value = object_in(frame.data) if isinstance(frame, Frame) else None
            if value is None or not isinstance(choices := value.get("choices"), list) or not choices:
                for index, reader in self._readers.items():
                    if not index or value is None or not value.get("usage"):
                        yield ChoicePiece(index, reader.feed_frames([frame]))
                continue
            if value.get("usage"):
                yield ChoicePiece(0, self._reader(0).take({**value, "choices": []}))
            told: set[int] = set()
            for index, choice in _apart(choices, self._most):
                beside = {} if index in told else value  # once, however often a choice stands there
                told.add(index)
                one = {**beside, "choices": [{**choice, "index": 0}], "usage": None}
                yield ChoicePiece(index, self._reader(index).take(one), logprobs_of(choice))

    def _reader(self, index: int) -> FrameAdapter:
        if index not in self._readers:
            self._readers[index] = adapter("openai", self._limits)
        return self._readers[index]


def read_choices(value: Body, limits: Limits, most: int) -> Iterator[ChoicePiece]:
    """Yield the choices of a whole answer, `most` of them, each as it stands there first."""
    choices = value.get("choices")
    told: set[int] = set()
    for index, choice in _apart(choices if isinstance(choices, list) else [], most):
        if index in told:
            continue
        told.add(index)
        one = {**value, "choices": [{**choice, "index": 0}], "usage": None if index else value.get("usage")}
        yield ChoicePiece(index, finished(one, limits), logprobs_of(choice))


def logprobs_of(choice: Body) -> Body | None:
    """Return the log probabilities beside a choice, if there are any."""
    found = choice.get("logprobs")
    return found if isinstance(found, dict) else None


def _apart(choices: list[Any], most: int) -> Iterator[tuple[int, Body]]:
    for place, choice in enumerate(choices):
        index = choice.get("index", place) if isinstance(choice, dict) else None
        if type(index) is int and 0 <= index < most:
            yield index, choice
