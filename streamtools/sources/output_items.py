"""The output items of a response that is being streamed, and how an event's item is found again. Sans-IO.

An item has an id, an index, and if it is a call the call's id; servers leave out each of them, some give an item a new
id with each event, and some the same index to all. So an item is the one with the id that an event names, else the one
with its index, and where one of the two sides has neither, the newest of its kind that is still open. Ids collide too:
an item that one of its two ids names, and whose other id and index are another's, is another.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import StringIO
from typing import Any

from streamtools.errors import Code
from streamtools.sources.pairs import Pairs
from streamtools.sources.words import string
from streamtools.surrogates import whole


class Item:
    """What is known of an output item. `key` is one for each item of the response."""

    __slots__ = (
        "begun",
        "call_id",
        "cited",
        "content",
        "cut",
        "done",
        "fault",
        "given",
        "heard",
        "id",
        "index",
        "key",
        "kind",
        "name",
        "pairs",
        "part",
        "settled",
        "streamed",
        "told",
    )

    def __init__(self, kind: str, key: str, id: str | None, index: int | None) -> None:
        self.kind = kind
        self.key = key
        self.id = id
        self.index = index
        self.done = False
        # of text and reasoning
        self.heard = StringIO()  # what has come of the part that is open
        self.settled: list[str] = []  # the parts before it
        self.part: object = None  # which one is open
        self.cited = False
        # of calls
        self.call_id: str | None = None
        self.name: str | None = None
        self.begun = False
        self.streamed = False  # arguments have come in deltas
        self.told = False  # they have come whole
        self.cut = False  # it began as one that is not complete
        self.fault: Code | None = None  # why it cannot be run
        self.content: str | None = None  # what it said, once it is done
        self.given: Any = None  # as they came whole
        self.pairs = Pairs()

    @property
    def text(self) -> str:
        """What has come of its text."""
        return "".join(self.settled) + self.heard.getvalue()

    def forget(self) -> None:
        """Let go of what is no longer needed once an item is done."""
        self.done = True
        self.heard = StringIO()
        self.settled.clear()
        self.given = None


class Items:
    """The items of one response, in the order in which they appeared."""

    def __init__(self) -> None:
        self.all: list[Item] = []
        self._by_name: dict[str, Item] = {}  # by its id, and by its call's
        self._by_index: dict[int, Item] = {}
        self._newest: dict[str, Item] = {}  # of each kind

    def knows(self, kind: str, id: Any, index: Any, call_id: Any) -> bool:
        """Return whether one of the ids is that of an item, or of its call."""
        return self._find_named(kind, string(id), place(index), string(call_id)) is not None

    def add(self, kind: str, id: Any, index: Any) -> Item:
        """Return a new item. What is no id, or no index, counts as not sent."""
        item = Item(kind, str(len(self.all) + 1), string(id), place(index))
        self.all.append(item)
        self._newest[kind] = item
        if item.id is not None:
            self._by_name[item.id] = item
        if item.index is not None:
            self._by_index[item.index] = item
        return item

    def get(self, kind: str, id: Any, index: Any, call_id: Any = None) -> Item:
        """Return the item that is meant, which is a new one if none is known."""
        return self.find(kind, id, index, call_id) or self.add(kind, id, index)

    def find(self, kind: str, id: Any, index: Any, call_id: Any = None) -> Item | None:
        """Return the item that is meant, if it is known."""
        return self._find(kind, string(id), place(index), string(call_id))

    def name_call(self, item: Item, call_id: Any, name: Any) -> None:
        """Take note of a call's id and its tool, if they are told and have not been before."""
        item.name = item.name or string(name)
        if item.call_id is None and (known := string(call_id)) is not None:
            item.call_id = known
            self._by_name.setdefault(known, item)

    def _find(self, kind: str, id: str | None, index: int | None, call_id: str | None) -> Item | None:
        if (named := self._find_named(kind, id, index, call_id)) is not None:
            return named
        found = None if index is None else self._by_index.get(index)
        if found is None:
            found = self._newest.get(kind)
            if found is None or found.done or (found.id and id) or not (found.index is None or index is None):
                return None
        if found.kind != kind or differ(call_id, found.call_id):
            return None
        return found

    def _find_named(self, kind: str, id: str | None, index: int | None, call_id: str | None) -> Item | None:
        for name in (id, call_id):
            item = self._by_name.get(name) if name is not None else None
            if item is None or item.kind != kind:
                continue
            if differ(index, item.index):
                other = self._by_index.get(index) if index is not None else None
                if other is not None and other.kind == kind and name in (other.id, other.call_id):
                    return other
                if differ(call_id, item.call_id) or (name == call_id and differ(id, item.id)):
                    continue
            return item
        return None


def differ(one: object, other: object) -> bool:
    """Return whether both are told, and not the same."""
    return one is not None and other is not None and one != other


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, and none of what is no list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text_of(parts: Iterable[dict[str, Any]], separator: str = "") -> str:
    """Return what the parts of an item say."""
    texts = (part.get(TEXTS[kind]) for part in parts if isinstance(kind := part.get("type"), str) and kind in TEXTS)
    return whole(separator.join(text for text in texts if isinstance(text, str) and text))


TEXTS = {"output_text": "text", "refusal": "refusal", "reasoning_text": "text", "summary_text": "text"}
"""The parts of items that hold text, and where."""


def place(index: Any) -> int | None:
    return index if isinstance(index, int) else None
