"""The reply of a model to a request: it is sent when its first event is asked for, and closed with whoever reads it.

So whoever makes a reply and never reads it has asked nothing. A request over a long history takes long to write, and
is written in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Self

from streamtools.conversation.models.answer_format import AnswerCall
from streamtools.conversation.models.http_model import Ask, HTTPModel, Model, origin_of
from streamtools.events import SourceEvent
from streamtools.history import Message, Origin, User
from streamtools.stream.long_work import in_thread

_LONG = 200  # messages, parts, calls and results of a history whose request is written in a thread, if it has more


class Reply:
    """The events of a model's reply to `ask`, behind those that are `before` it.

    The request is sent when it is first read, and its response closed with whoever reads it.
    """

    def __init__(self, model: Model, ask: Ask, before: Sequence[SourceEvent] = ()) -> None:
        self._model = model
        self._ask = ask
        self._before = before
        self._answer = AnswerCall() if ask.output is not None and not ask.tools else None
        self._opened: AbstractAsyncContextManager[Any] | None = None
        self._source: Any = None

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """Whose answer it is."""
        return origin_of(self._model)

    @property
    def url(self) -> str | None:
        """Where the request goes, if it goes anywhere."""
        return getattr(self._model, "url", None)

    @property
    def history(self) -> Sequence[Message]:
        """What the model is sent."""
        return self._ask.history

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._before:
            before, self._before = self._before, ()
            return before
        if self._source is None:
            model, ask = self._model, self._ask
            if isinstance(model, HTTPModel) and _is_long(ask.history):  # its body takes long to write
                opened = await in_thread(partial(model.stream, ask))
            else:
                opened = model.stream(ask)
            self._source = await opened.__aenter__()
            self._opened = opened
        batch: Sequence[SourceEvent] = await anext(self._source)
        return batch if self._answer is None else self._answer.read(batch)

    async def aclose(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(None, None, None)


def _is_long(history: Sequence[Message]) -> bool:
    """Return whether a history has so many parts that to write it would keep other runs waiting."""
    parts = 0
    for message in history:
        held = message.content if isinstance(message, User) else getattr(message, "results", ())
        parts += 1 + (len(held) if not isinstance(held, str) else 0) + len(getattr(message, "calls", ()))
    return parts > _LONG
