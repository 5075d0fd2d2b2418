"""Reads the type of a typed answer, and validates the items of a list in the answer while it streams."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from streamtools.events import Partial, UIEvent
from streamtools.json_values import Draft
from streamtools.tools.schemas import check_keywords

if TYPE_CHECKING:
    from streamtools.typed import OutputType


def output_type(kind: Any) -> OutputType | None:
    """Convert the parameter `output` to an `OutputType`. Returns None for None.

    Raises ValueError for a JSON schema with a keyword whose value JSON Schema does not allow.
    """
    if kind is None:
        return None
    if isinstance(kind, Mapping):
        check_keywords(kind)
    from streamtools.typed import OutputType  # few streams have a typed answer, and importing this takes time

    return kind if isinstance(kind, OutputType) else OutputType(kind)


async def items_of(
    events: AsyncIterable[UIEvent], kind: Any, path: Sequence[str | int] | None = None
) -> AsyncIterator[Any]:
    """Yield the items of a list in the answer. Each item is validated as the type `kind` as soon as it is complete.

    `path` is the path of the list. None means the first list of the answer. Invalid items are skipped.
    """
    item_type, draft, list_path = output_type(kind), Draft(), None if path is None else list(path)
    async for event in events:
        if type(event) is not Partial or event.call_id is not None or item_type is None:
            continue
        draft.add(event.path, event.value, event.complete)
        if not event.complete:
            if path is None and not event.path:
                list_path = None  # an empty path: another answer starts
            if list_path is None and type(event.value) is list:
                list_path = event.path
        elif list_path is not None and event.path and event.path[:-1] == list_path and type(event.path[-1]) is int:
            item = draft.at(event.path)
            try:
                valid = item_type.validate(msgspec.json.encode(item).decode())
            except ValueError:
                continue
            yield valid
