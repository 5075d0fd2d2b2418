"""`ScriptedModel`, a model for tests. Its answers are passed to the constructor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import pairwise
from typing import Any, Never, TypeAlias

import anyio

from streamtools.conversation.models.model import Ask, check_body_fields
from streamtools.conversation.models.providers import chat_completions_body
from streamtools.errors import ListsNames, check_number, described
from streamtools.events import SOURCE_EVENTS, ChainCompleted, ProviderCompleted, SourceError, SourceEvent, TextDelta
from streamtools.logs import Logger
from streamtools.sources import Source, adapter, detect, events

log = Logger(__name__)

_Delta: TypeAlias = str | bytes | SourceEvent | BaseException
ScriptedReply: TypeAlias = _Delta | Sequence[object]  # mypy infers `list[object]` for a list of a text and a call
"""One answer of a `ScriptedModel`.

It is one delta or a list of deltas. A delta is a text, a source event, a chunk (bytes) of a provider's stream, or an
exception, which the transport raises at this position."""

_ENDS = (ProviderCompleted, ChainCompleted, SourceError, BaseException)


class ScriptedModel(ListsNames):
    """A model that returns the given `answers` in order, and records the requests in `asks`.

    If an answer contains no bytes, and no event or exception ends it, a `ProviderCompleted` event is added. Bytes are
    read by the adapter named `format`, or by the adapter that recognizes them. The source converts an
    exception to an error event, like an exception of the network. `delay` is the number of seconds before each delta.
    `options` are fields of the body.

    Raises TypeError for an answer of another type or a misspelled parameter, and ValueError for a wrong `delay`.

    >>> model = ScriptedModel(["Hello!"])
    >>> model.asks
    []
    """

    def __init__(
        self,
        answers: Iterable[ScriptedReply] | None = None,  # None only for a helpful message
        *more: Never,  # only for a helpful message
        name: str = "scripted",
        native_tool_calls: bool | None = None,
        format: str | None = None,
        delay: float = 0.0,
        **options: Any,
    ) -> None:
        check_body_fields(type(self), options)
        check_number("delay", delay, 0)
        if more or isinstance(answers, str | bytes) or not isinstance(answers, Iterable):
            example = ["Hello!" if answers is None else answers, *more]
            raise TypeError(f"answers must be a list of answers, such as {example!r}, got {answers!r}")
        self.name = name
        self.native_tool_calls = native_tool_calls
        self.options = options
        self.asks: list[Ask] = []
        """The requests that the model received, in order."""
        self.open = 0
        """The number of answers that are currently open."""
        self._answers = list(answers)
        for number, answer in enumerate(self._answers):
            _read_answer(number, answer)
        texts = [answer if isinstance(answer, str) else "" for answer in self._answers]
        if any(one and other and (one[-1] == " " or other[0] == " ") for one, other in pairwise(texts)):
            log.warning("answers_are_fragments", advice='for deltas of one answer, write [["Hello ", "world"]]')
        self._format, self._delay = format, delay

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
            number, more = len(self.asks) + 1, "write one more, or make a ScriptedModel for each chat"
            raise LookupError(f"the script has no answer for request {number}, only {len(self._answers)}: {more}")
        deltas = _read_answer(len(self.asks), self._answers[len(self.asks)])
        self.asks.append(ask)
        return self._open(deltas)

    @asynccontextmanager
    async def _open(self, deltas: list[_Delta]) -> AsyncIterator[Source]:
        chunks = _play(deltas, self._delay)
        if not any(isinstance(delta, bytes) for delta in deltas):
            source = events(chunks)
        else:
            source = Source(chunks, adapter(self._format)) if self._format else detect(chunks)
        self.open += 1
        try:
            yield source
        finally:
            self.open -= 1
            await source.aclose()


def _read_answer(number: int, answer: ScriptedReply) -> list[_Delta]:
    """Return the deltas of an answer, with its end. Raises TypeError for a delta of another type."""
    is_list = isinstance(answer, Sequence) and not isinstance(answer, str | bytes)
    deltas: list[Any] = list(answer) if is_list else [answer]  # type: ignore[arg-type]
    for delta in deltas:
        if not isinstance(delta, (str, bytes, BaseException, *SOURCE_EVENTS)):
            kinds = 'a text, bytes, an exception or a source event, such as NativeToolCall("name", {})'
            raise TypeError(f"answers[{number}]: a delta must be {kinds}, got {described(delta)}")
    if any(isinstance(delta, bytes) for delta in deltas):
        return deltas
    if not any(isinstance(delta, _ENDS) for delta in deltas):
        deltas.append(ProviderCompleted(finish_reason="stop"))
    return [TextDelta(delta) if isinstance(delta, str) else delta for delta in deltas]


async def _play(deltas: Iterable[Any], delay: float) -> AsyncIterator[Any]:
    for delta in deltas:
        await anyio.sleep(delay)
        if isinstance(delta, BaseException):
            raise delta
        yield delta
