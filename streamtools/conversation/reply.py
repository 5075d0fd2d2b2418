"""`Reply`: a model's reply to one request, as a source of events.

The request is sent when the first event of the answer is read, so a reply that is never read sends nothing. Serializing
a long history would block the event loop, so a worker thread does this for an `HTTPModel`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Self

import msgspec

from streamtools.conversation.models.http_model import HTTPModel
from streamtools.conversation.models.model import AnswerToolReader, Ask, Model, origin_of
from streamtools.events import SourceEvent
from streamtools.history import Message, Origin
from streamtools.stream.long_work import IN_THREAD, in_thread, in_thread_if


def _is_long(history: Sequence[Message]) -> bool:
    """Return whether it may take more than 50 ms to write a history. A character takes up to 0.1 µs, a part 25 µs."""
    sizes = accumulate(len(msgspec.json.encode(message)) for message in history)
    try:
        return any(size > IN_THREAD for size in sizes)
    except (TypeError, ValueError, OverflowError, RecursionError):  # for example a lone surrogate
        return True


class ModelSource:
    """A source of events from a model, as an asynchronous iterator of batches."""

    model: Model
    """The model that produces the next events."""

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """The format, host and model of the events."""
        return origin_of(self.model)

    @property
    def url(self) -> str | None:
        """The URL of the request; None if the model has none."""
        return getattr(self.model, "url", None)


class Reply(ModelSource):
    """A source of events: first `before`, then the events of the model's reply to `ask`."""

    def __init__(self, model: Model, ask: Ask, before: Sequence[SourceEvent] = ()) -> None:
        self.model = model
        self._ask = ask
        self._before = before
        self._answer_tool = AnswerToolReader() if ask.output is not None and not ask.tools else None
        self._stream_context: AbstractAsyncContextManager[Any] | None = None
        self._source: Any = None

    @property
    def history(self) -> Sequence[Message]:
        """The history in the request."""
        self._hide()
        return self._ask.history

    def _hide(self) -> None:
        """Replace the values of a vault in the history."""
        if (hide := self._ask.hide) is not None:
            self._ask = replace(self._ask, history=tuple(hide(self._ask.history)), hide=None)

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._before:
            before, self._before = self._before, ()
            return before
        if self._source is None:
            if self._ask.hide is not None:
                await in_thread(self._hide)  # 0.1 s for 168 KB, and finders may be slow
            model, ask = self.model, self._ask
            is_long = isinstance(model, HTTPModel) and _is_long(ask.history)
            stream_context = await in_thread_if(is_long, partial(model.stream, ask))
            self._source = await stream_context.__aenter__()
            self._stream_context = stream_context
        batch: Sequence[SourceEvent] = await anext(self._source)
        return batch if self._answer_tool is None else self._answer_tool.read(batch)

    async def aclose(self) -> None:
        stream_context, self._stream_context = self._stream_context, None
        if stream_context is not None:
            await stream_context.__aexit__(None, None, None)


class Replies(ModelSource):
    """A source of events that reads several replies in order."""

    _batches: AsyncGenerator[Sequence[SourceEvent]]  # yields the events
    _reply: Reply | None = None  # the current reply; None before the first request

    async def __anext__(self) -> Sequence[SourceEvent]:
        return await anext(self._batches)

    async def aclose(self) -> None:
        await self._batches.aclose()
        if self._reply is not None:
            await self._reply.aclose()
