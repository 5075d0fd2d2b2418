"""What a stream has of the `output` that was asked for: the value so far, and the items of a list as they close."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from streamtools.events import Partial
from streamtools.json_values import Draft
from streamtools.stream.handover import Handover
from streamtools.tools.schemas import check_keywords

if TYPE_CHECKING:
    from streamtools.typed import OutputType


def output_type(kind: Any) -> OutputType | None:
    """Return the type that is meant by the parameter `output`; None if there is none.

    Raises ValueError for a JSON schema in which something is not what JSON Schema has in its place.
    """
    if kind is None:
        return None
    if isinstance(kind, Mapping):
        check_keywords(kind)
    from streamtools.typed import OutputType  # here, because few streams have a type

    return kind if isinstance(kind, OutputType) else OutputType(kind)


class TypedOutput(Handover):
    """The part of `ToolStream` that is about `output`."""

    @property
    def output(self) -> Any:
        """The answer so far, as plain data that goes on to grow: never an instance, and never validated.

        `result.output` is the validated instance, once the answer is complete and valid.
        """
        self._collector.look()
        return self._collector.draft.value

    async def items(self, kind: Any, *, path: Sequence[str | int] | None = None) -> AsyncIterator[Any]:
        """Yield the items of a list in the answer, each validated as a `kind` as soon as it closes.

        `path` is that of the list; without it, it is the first list that the answer holds. This reads the stream, so
        other events are not seen; what is no valid item is left out, and told by the warning about the whole answer.
        """
        of, draft, place = output_type(kind), Draft(), None if path is None else list(path)
        async for event in self:
            if type(event) is not Partial or event.call_id is not None or of is None:
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
