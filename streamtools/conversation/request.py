"""One request to a model, as the source of its reply: sent when it is first read, closed with whoever reads it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

from streamtools.conversation.models.base import Ask, Model
from streamtools.events import SourceEvent


class Reply:
    """The events of a model's reply to `ask`, behind those that are `before` it."""

    def __init__(self, model: Model, ask: Ask, before: Sequence[SourceEvent] = ()) -> None:
        self._model = model
        self._ask = ask
        self._before = before
        self._opened: AbstractAsyncContextManager[Any] | None = None
        self._source: Any = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._before:
            before, self._before = self._before, ()
            return before
        if self._source is None:
            opened = self._model.stream(self._ask)
            self._source = await opened.__aenter__()
            self._opened = opened
        batch: Sequence[SourceEvent] = await anext(self._source)
        return batch

    async def aclose(self) -> None:
        """Close the response, if there is one."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.__aexit__(None, None, None)
