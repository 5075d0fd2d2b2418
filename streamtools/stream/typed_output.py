"""What a stream has of the `output` that was asked for: the value so far, and the items of a list as they close."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from streamtools.events import Partial, UIEvent

if TYPE_CHECKING:
    from streamtools.typed import OutputType


class Draft:
    """A value that is put together from what was added; pieces of a string are joined when it is asked for."""

    def __init__(self) -> None:
        self._root: Any = None
        self._parent: Any = None  # of what was added last; None if that is the whole value
        self._key: str | int = 0
        self._pieces: list[str] = []  # of the string that is open

    def add(self, path: Sequence[str | int], value: Any, complete: bool) -> None:
        """Add a value at its place."""
        kind = type(value)
        if kind is str and self._pieces:
            self._pieces.append(value)
        elif not (complete and kind in (dict, list)):
            self._put(path, {} if kind is dict else [] if kind is list else value)
            if kind is str:
                self._pieces.append(value)
        if complete and self._pieces:
            self._join()
            self._pieces = []

    @property
    def value(self) -> Any:
        """The value so far, as plain data, which goes on to grow."""
        if self._pieces:
            self._join()
        return self._root

    def at(self, path: Sequence[str | int]) -> Any:
        """Return what stands at a place."""
        value = self.value
        for key in path:
            value = value[key]
        return value

    def _join(self) -> None:
        self._pieces = ["".join(self._pieces)]
        if self._parent is None:
            self._root = self._pieces[0]
        else:
            self._parent[self._key] = self._pieces[0]

    def _put(self, path: Sequence[str | int], value: Any) -> None:
        if not path:
            self._parent, self._root = None, value
            return
        parent = self._root
        for key in path[:-1]:
            parent = parent[key]
        self._parent, self._key = parent, path[-1]
        if isinstance(parent, list):
            parent.append(value)
        else:
            parent[self._key] = value


def output_type(kind: Any) -> OutputType | None:
    """Return the type that is meant by the parameter `output`; None if there is none."""
    if kind is None:
        return None
    from streamtools.typed import OutputType  # here, because few streams have a type

    return kind if isinstance(kind, OutputType) else OutputType(kind)


class _Stream(Protocol):
    _collector: Any  # of the result, which this module does not know

    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> UIEvent: ...


class TypedOutput:
    """The part of `ToolStream` that is about `output`."""

    @property
    def output(self: _Stream) -> Any:
        """The answer so far, as plain data that goes on to grow: never an instance, and never validated.

        `result.output` is the validated instance, once the answer is complete and valid.
        """
        self._collector.look()
        return self._collector.draft.value

    async def items(self: _Stream, kind: Any, *, path: Sequence[str | int] | None = None) -> AsyncIterator[Any]:
        """Yield the items of a list in the answer, each validated as a `kind` as soon as it closes.

        `path` is that of the list; without it, it is the first list that the answer holds. This reads the stream, so
        other events are not seen; what is no valid item is left out, and told by the warning about the whole answer.
        """
        of, draft, place = output_type(kind), Draft(), None if path is None else list(path)
        async for event in self:
            if type(event) is not Partial or of is None:
                continue
            draft.add(event.path, event.value, event.complete)
            if not event.complete:
                if path is None and not event.path:
                    place = None  # another answer begins
                if place is None and type(event.value) is list:
                    place = event.path
            elif place is not None and event.path and event.path[:-1] == place and type(event.path[-1]) is int:
                item = draft.at(event.path)
                try:
                    valid = of.validate(msgspec.json.encode(item).decode())
                except ValueError:
                    continue
                yield valid
