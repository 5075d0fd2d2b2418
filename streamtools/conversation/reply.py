"""`Reply`: a model's reply to one request, as a source of events.

The request is sent when the first event is read, so a reply that is never read sends nothing. A long history takes long
to write, so it is written in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Self

from streamtools.conversation.models.http_model import HTTPModel
from streamtools.conversation.models.model import Ask, Model, origin_of
from streamtools.conversation.models.output_format import AnswerCall
from streamtools.events import SourceEvent
from streamtools.history import Message, Origin, User
from streamtools.stream.long_work import in_thread

_LONG_HISTORY = 200  # messages, parts, calls and results


class Reply:
    """The events of a model's reply to `ask`, after the events in `before`."""

    def __init__(self, model: Model, ask: Ask, before: Sequence[SourceEvent] = ()) -> None:
        self._model = model
        self._ask = ask
        self._before = before
        self._answer_call = AnswerCall() if ask.output is not None and not ask.tools else None
        self._opened: AbstractAsyncContextManager[Any] | None = None
        self._source: Any = None

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """The origin of the answer."""
        return origin_of(self._model)

    @property
    def url(self) -> str | None:
        """The URL of the request; None if the model has none."""
        return getattr(self._model, "url", None)

    @property
    def history(self) -> Sequence[Message]:
        """The history that the model is sent."""
        return self._ask.history

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._before:
            before, self._before = self._before, ()
            return before
        if self._source is None:
            model, ask = self._model, self._ask
            if isinstance(model, HTTPModel) and _is_long(ask.history):
                opened = await in_thread(partial(model.stream, ask))
            else:
                opened = model.stream(ask)
            self._source = await opened.__aenter__()
            self._opened = opened
        batch: Sequence[SourceEvent] = await anext(self._source)
        return batch if self._answer_call is None else self._answer_call.read(batch)

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(None, None, None)


def _is_long(history: Sequence[Message]) -> bool:
    """Return whether writing a history would block the event loop for too long."""
    parts = 0
    for message in history:
        content = message.content if isinstance(message, User) else getattr(message, "results", ())
        parts += 1 + (len(content) if not isinstance(content, str) else 0) + len(getattr(message, "calls", ()))
    return parts > _LONG_HISTORY
