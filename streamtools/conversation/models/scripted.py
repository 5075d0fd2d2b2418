"""A model whose answers are written beforehand: for tests, yours as ours. It asks no network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeAlias

import anyio.lowlevel

from streamtools.conversation.models.base import Ask
from streamtools.conversation.models.openai import chat_body
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.sources import Source, adapter, detect, events

Piece: TypeAlias = str | bytes | SourceEvent | BaseException
ScriptedReply: TypeAlias = Piece | Sequence[Piece]
"""A text; a list of texts, which are its deltas, or of source events, or of the bytes of a provider's stream; and in
place of any, or among them, an exception that the transport raises there."""


class ScriptedModel:
    """Gives one answer after the other, and remembers what it was asked.

    A text ends as a provider's would; events end as they are written. Bytes are read as those of `format`, an adapter's
    name, or as what they look like. An exception is to the source what one of a network is: an error event.

    >>> model = ScriptedModel(["Hello!"])
    >>> model.asks
    []
    """

    def __init__(
        self,
        answers: Iterable[ScriptedReply],
        *,
        name: str = "scripted",
        native_tool_calls: bool | None = None,
        format: str | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.native_tool_calls = native_tool_calls
        self.options = options
        self.asks: list[Ask] = []
        """What it was asked, in order."""
        self.open = 0
        """Answers that have been begun and not been left."""
        self._answers = list(answers)
        self._format = format

    @property
    def left(self) -> int:
        """How many answers nobody has asked for."""
        return len(self._answers) - len(self.asks)

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return the body that `OpenAIChat` would send."""
        return chat_body(self.name, ask, self.options)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """ScriptedReply. Raises LookupError if the script is over."""
        if not self.left:
            raise LookupError(f"the script has {len(self._answers)} answers, and this is request {len(self.asks) + 1}")
        answer = self._answers[len(self.asks)]
        self.asks.append(ask)
        return _Answering(self, answer, self._format)


class _Answering:
    def __init__(self, model: ScriptedModel, answer: ScriptedReply, format: str | None) -> None:
        self._model = model
        self._pieces: list[Any] = list(answer) if isinstance(answer, Sequence) and not _is_one(answer) else [answer]
        self._format = format

    async def __aenter__(self) -> Source:
        self._model.open += 1
        if any(isinstance(piece, bytes) for piece in self._pieces):
            bytes_ = _play(self._pieces)
            self._source = Source(bytes_, adapter(self._format)) if self._format else detect(bytes_)
        else:
            self._source = events(_play(_as_events(self._pieces)))
        return self._source

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._model.open -= 1
        await self._source.aclose()


def _is_one(answer: object) -> bool:
    return isinstance(answer, str | bytes)


def _as_events(pieces: Sequence[Any]) -> list[Any]:
    """Return texts as events, and the end of a turn behind the last where only texts are written."""
    written = [TextDelta(piece) if isinstance(piece, str) else piece for piece in pieces]
    only_text = all(isinstance(piece, str) for piece in pieces)
    return [*written, ProviderCompleted(finish_reason="stop")] if only_text else written


async def _play(pieces: Iterable[Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        await anyio.lowlevel.checkpoint()
        if isinstance(piece, BaseException):
            raise piece
        yield piece
