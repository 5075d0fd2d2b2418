"""`ScriptedModel`, a model for tests. Its answers are passed to the constructor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import anyio.lowlevel

from streamtools.conversation.models.model import Ask
from streamtools.conversation.models.providers import chat_completions_body
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.sources import Source, adapter, detect, events

_Delta: TypeAlias = str | bytes | SourceEvent | BaseException
ScriptedReply: TypeAlias = _Delta | Sequence[_Delta]
"""One answer of a `ScriptedModel`.

It is one delta or a list of deltas. A delta is a text, a source event, a chunk (bytes) of a provider's stream, or an
exception, which the transport raises at this position."""


class ScriptedModel:
    """A model that returns the given `answers` in order, and records the requests in `asks`.

    If all deltas of an answer are texts, a `ProviderCompleted` event is added at its end. Otherwise no event is added.
    Bytes are read by the adapter named `format`, or by the adapter that recognizes them. The source converts an
    exception to an error event, like an exception of the network. `options` are fields of the body.

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
        if isinstance(answers, str | bytes):
            raise TypeError(f"answers must be a list of answers, such as [{answers!r}], got {answers!r}")
        self.name = name
        self.native_tool_calls = native_tool_calls
        self.options = options
        self.asks: list[Ask] = []
        """The requests that the model received, in order."""
        self.open = 0
        """The number of answers that are currently open."""
        self._answers = list(answers)
        self._format = format

    @property
    def left(self) -> int:
        """The number of answers that were not requested yet."""
        return len(self._answers) - len(self.asks)

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return the body that `OpenAIChat` would send."""
        return chat_completions_body(self.name, ask, self.options)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Return the next answer. Raises LookupError if all answers were requested before."""
        if not self.left:
            raise LookupError(f"the script has {len(self._answers)} answers, and this is request {len(self.asks) + 1}")
        answer = self._answers[len(self.asks)]
        self.asks.append(ask)
        is_sequence = isinstance(answer, Sequence) and not isinstance(answer, str | bytes)
        return self._open(answer if is_sequence else [answer])

    @asynccontextmanager
    async def _open(self, deltas: Any) -> AsyncIterator[Source]:
        if any(isinstance(delta, bytes) for delta in deltas):
            chunks = _play(deltas)
            source = Source(chunks, adapter(self._format)) if self._format else detect(chunks)
        else:
            written = [TextDelta(delta) if isinstance(delta, str) else delta for delta in deltas]
            if all(isinstance(delta, str) for delta in deltas):
                written.append(ProviderCompleted(finish_reason="stop"))
            source = events(_play(written))
        self.open += 1
        try:
            yield source
        finally:
            self.open -= 1
            await source.aclose()


async def _play(deltas: Iterable[Any]) -> AsyncIterator[Any]:
    for delta in deltas:
        await anyio.lowlevel.checkpoint()
        if isinstance(delta, BaseException):
            raise delta
        yield delta
