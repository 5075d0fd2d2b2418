"""Reads the items of a list in a typed answer from the events of a stream or a run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, overload

from streamtools.errors import Code, check_word
from streamtools.events import Done, Partial, UIEvent, Warning
from streamtools.json_values import Draft, compact
from streamtools.logs import Logger
from streamtools.stream.options import output_type
from streamtools.typed import InvalidItem, InvalidValue

log = Logger(__name__)

_Item = TypeVar("_Item")
_ListPath: TypeAlias = Sequence[str | int] | None
_Invalid: TypeAlias = Literal["skip", "yield"]
_MISSING = "a part of the answer is missing (read before, or dropped): read `result.output`"


class TypedItems:
    """The base of iterators over events that have the method `items`."""

    position = 0
    """The `seq` of the last event that was read, in a run."""
    _is_typed = True
    """Whether the answer may have a type."""

    def __aiter__(self) -> AsyncIterator[UIEvent]:
        raise NotImplementedError

    @overload
    def items(self, kind: type[_Item], *, path: _ListPath = None) -> AsyncIterator[_Item]: ...
    @overload
    def items(
        self, kind: type[_Item], *, path: _ListPath = None, invalid: _Invalid
    ) -> AsyncIterator[_Item | InvalidItem]: ...
    @overload
    def items(self, kind: object, *, path: _ListPath = None, invalid: _Invalid = "skip") -> AsyncIterator[Any]: ...
    async def items(self, kind: Any, *, path: _ListPath = None, invalid: _Invalid = "skip") -> AsyncIterator[Any]:
        """Yield the items of a list in the answer. Each item is validated as the type `kind` as soon as it is complete.

        `path` is the path of the list. None means the first list of the answer. If there is an object at `path`, its
        members are the items. `items` reads all events, but skips those that complete no item.

        Invalid items are skipped. With `invalid="yield"`, each is an `InvalidItem` with its value and its errors. Valid
        items after an invalid item are also yielded. If another answer replaces the first one, an `InvalidItem` with
        the path `[]` follows, and then the items of the new answer. Raises ValueError if the stream has no `output`, or
        if a part of the answer was already read, or is no longer in the log of the run.
        """
        check_word("invalid", invalid, ("skip", "yield"))
        if not self._is_typed:
            name = getattr(kind, "__name__", "Item")
            raise ValueError(f"items({name}) needs a typed answer: write output=list[{name}] where the stream is made")
        if self.position:
            raise ValueError(f"items() needs all events of a run: write run.attach(), without {self.position}")
        if isinstance(path, str):
            raise TypeError(f"`path` must be a list of keys, such as [{path!r}], got {path!r}")
        item_type, draft, list_path = output_type(kind), Draft(), None if path is None else list(path)
        has_list = is_cut = False  # `is_cut`: events of the answer that is read now may be missing
        async for event in self:
            is_cut = is_cut or (type(event) is Warning and event.code == Code.RESYNC and event.seq > 0)
            if type(event) is Done and is_cut and event.reason != "waiting":
                raise ValueError(_MISSING)
            if type(event) is Done and event.reason == "finished" and not has_list:
                log.warning("no_list_in_answer", advice="write output=list[Item], or path=[...]")
            if type(event) is not Partial or event.call_id is not None or item_type is None:
                continue
            if not (event.path or event.complete):  # an answer starts, or a run is sent again after a crash
                list_path, is_cut = None if path is None else list_path, False
                if draft.value is not None and invalid == "yield":
                    yield InvalidItem([], draft.value, ["another answer replaces this one"])
                draft = Draft()  # the earlier answer may have been cut within a string
            elif event.path and (is_cut or draft.value is None):
                raise ValueError(_MISSING)
            draft.add(event.path, event.value, event.complete)
            if not event.complete:
                if list_path is None and type(event.value) is list:
                    list_path = event.path
                has_list = has_list or event.path == list_path
            elif list_path is not None and event.path and event.path[:-1] == list_path:
                item = draft.at(event.path)
                try:
                    valid = item_type.validate(compact(item))
                except InvalidValue as fault:
                    if invalid == "yield":
                        yield InvalidItem(event.path, item, fault.errors)
                else:
                    yield valid
