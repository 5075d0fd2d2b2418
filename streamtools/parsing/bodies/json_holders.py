"""JSON that holds its calls in ways of its own: under the tool's name, or inside a container."""

from __future__ import annotations

from typing import Protocol

from streamtools.errors import Code
from streamtools.parsing.envelope import FIELD, RAW, TEXT, Envelope, Listener

KEY, COLON, VALUE, BEHIND = "key", "colon", "value", "behind"
"""What may come next in an object: BEHIND a value, a comma or the end."""


class NamingListener(Listener, Protocol):
    """Who takes a name that is no member of the call's JSON."""

    def call(self, name: str) -> None:
        """The last call is of this tool."""

    def blame(self, code: Code, message: str) -> None:
        """The last call is an error."""


class CallsUnderNames(Envelope):
    """`[{"get_weather": {"city": "Paris"}}]`: the name is the key, and the arguments are its value.

    An object with several keys is several calls. Only the arguments are decoded later, so this judges all the rest.
    """

    __slots__ = ("_begun", "_naming", "_object", "_turn")
    usual = None

    def __init__(self, listener: NamingListener) -> None:
        super().__init__(listener)
        self._naming = listener
        self._turn = KEY
        self._object = 0  # the place where the object begins
        self._begun = False  # it has a call

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Take note of the array, an object in it, a name or its arguments."""
        if depth == 0 and first == "[":
            self._calls = self.depth = 1
        elif depth == self._calls:
            if not self._expects or first != "{":
                self._listener.begin_call(place)
                return False
            self._expects = self._first = self._begun = False
            self._object, self._turn = place, KEY
            self.depth = depth + 1
        elif self._turn == KEY and first == '"':
            self._listener.begin_call(place if self._begun else self._object)
            self._begun = True
            self.want, self.kept = FIELD, []
        elif self._turn == VALUE:
            self._listener.begin_arguments(place)
            self.want = {"": "", '"': TEXT}.get(first, RAW)
            self.wanted_depth = depth
        else:
            return self._refuse(place)
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """Take note of the end of what began."""
        want, self.want = self.want, ""
        if depth < self._calls:
            return self._first or not self._expects
        if depth == self._calls:
            self.depth = depth
            if self._turn == KEY and not self._begun:
                self._listener.begin_call(self._object)
                self._naming.blame(Code.MISSING_TOOL_NAME, "the call names no tool")
                self._listener.end_call(place)
                return True
            return self._turn == BEHIND
        if want == FIELD:
            self._end_field()
            self._turn = COLON
            return True
        if want == TEXT:
            self.tell(self.held)
            self.held = ""
        self._listener.end_call(place)
        self._turn = BEHIND
        return True

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Take note of a comma or a colon."""
        if depth == self._calls:
            return super().separate(mark, depth, place)
        expected = {COLON: ":", BEHIND: ","}.get(self._turn)
        if mark != expected:
            return self._refuse(place)
        self._turn = VALUE if mark == ":" else KEY
        return True

    def _refuse(self, place: int) -> bool:
        """Behind a complete call, what does not belong there is a bad one of its own."""
        if self._turn in (KEY, BEHIND):
            self._listener.begin_call(place)
        return False

    def _end_field(self) -> None:
        name = self._read_field()
        if name is None:
            self._naming.blame(Code.MISSING_TOOL_NAME, "the name of the tool is too long")
        else:
            self._naming.call(name)


class CallsInContainer(Envelope):
    """`{"tools": [{"tool": "get_weather", "arguments": {...}}]}`, or one call, or an array of calls.

    The first key tells a container from a call.
    """

    __slots__ = ("_in_container", "_place", "_turn")
    usual = None

    CONTAINERS = frozenset({"tools", "tool_calls"})

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener)
        self._in_container: bool | None = None  # not known
        self._place = 0  # where the object begins
        self._turn = KEY

    def begin_value(self, first: str, depth: int, place: int) -> bool:
        """Take note of a value, or a key."""
        if self._in_container is False or depth > 1:
            return super().begin_value(first, depth, place)
        if depth == 0 and first == "{":
            self._place, self.depth = place, 1
        elif depth == 0:
            self._in_container = False
            return super().begin_value(first, depth, place)
        elif self._turn == KEY and first == '"' and self._in_container is None:
            self.want, self.kept = FIELD, []
        elif self._turn == VALUE and first == "[":
            self._calls = self.depth = 2
        else:
            self._listener.begin_call(place)
            return False
        return True

    def end_value(self, depth: int, place: int) -> bool:
        """Take note of the end of what began."""
        if self._in_container is False or depth > 1:
            return super().end_value(depth, place)
        if self.want == FIELD:
            self.want = ""
            self._begin(self._read_field())
            return True
        if depth == 1:
            self.depth, self._turn = 1, BEHIND
            return super().end_value(depth, place)
        if self._turn == KEY:
            self._listener.begin_call(self._place)
            self._listener.end_call(place)
        return self._turn in (KEY, BEHIND)

    def separate(self, mark: str, depth: int, place: int) -> bool:
        """Take note of a comma or a colon."""
        if self._in_container is False or depth > 1:
            return super().separate(mark, depth, place)
        if self._turn == COLON and mark == ":":
            self._turn = VALUE
            return True
        self._listener.begin_call(place)
        return False

    def _begin(self, key: str | None) -> None:
        """The first key of the object is known."""
        self._in_container = key in self.CONTAINERS
        if self._in_container:
            self._turn = COLON
        else:
            super().begin_value("{", 0, self._place)
            self._field = key
