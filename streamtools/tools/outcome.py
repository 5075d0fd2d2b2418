"""What comes out of a call: one value for the interface, one text for the model.

A tool returns whatever suits it. It is written as JSON once, here, and read back, so that what travels on is built of
plain values that every later stage can send, shares nothing with the tool's own objects, and says the same to the
interface as to the model. What cannot be written is the tool's fault and ends its call, never the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from streamtools.calls import ToolCall
from streamtools.errors import Code, StreamToolsError
from streamtools.events import Error, Executed
from streamtools.json_values import compact
from streamtools.surrogates import whole

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_SHOWN_OF_LONG = 1000  # characters of a result that is too long for the model


class ToolError(StreamToolsError):
    """Raised by a tool to refuse: its message goes to the model, and to the interface, word for word."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """Returned by a tool whose answer to the model is not what the interface gets; what is left out equals the other.

    With `stop`, the run ends once the tools that are at work have ended: calls not begun by then stay pending.

    >>> ToolResult(model="3 rows", ui=[1, 2, 3]).for_ui
    [1, 2, 3]
    >>> ToolResult(model="done", stop=True).for_ui
    'done'
    """

    model: Any = msgspec.UNSET
    ui: Any = msgspec.UNSET
    stop: bool = False

    @property
    def for_model(self) -> Any:
        """What the model gets."""
        return _first(self.model, self.ui)

    @property
    def for_ui(self) -> Any:
        """What the interface gets."""
        return _first(self.ui, self.model)


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one call ended. Each call that a runner was given has exactly one.

    `result` is for the interface (None after an error) and `text` for the model, which is told of errors too. `error`
    is None if the tool has answered; `message` is the answer's own, or what the interface may show of the error.
    `elapsed` is in seconds. `stop`: the tool wants the run to end. `abandoned`: its thread could not be stopped and has
    been left behind. `neutralise`: where `text` goes to the model inside a text, what looks like structure is disarmed.
    """

    call: ToolCall
    result: Any
    text: str
    error: Code | None
    message: str | None
    elapsed: float
    stop: bool = False
    abandoned: bool = False
    neutralise: bool = True

    def event(self, seq: int) -> Executed | Error:
        """Return the event that ends the call."""
        if self.error is None:
            return Executed(self.call, self.result, self.message, self.elapsed, seq)
        return Error(self.error, self.message or self.error, call_id=self.call.id, call=self.call, seq=seq)


class Written(NamedTuple):
    """A value in the two forms that leave a tool: plain values that JSON can hold, and text; and its wish to stop."""

    value: Any
    text: str
    stop: bool = False


def write(value: Any, type_: TypeAdapter[Any] | None = None) -> Written:
    """Return what a tool returned in the form for the interface and in the form for the model.

    A string stands for itself; everything else is compact JSON. `NaN` and infinities become null, half a surrogate
    pair becomes U+FFFD. Raises whatever the value's serialiser raises.
    """
    if isinstance(value, ToolResult):
        shown = write(value.for_ui)
        return Written(shown.value, shown.text if value.model is msgspec.UNSET else write(value.model).text, value.stop)
    data = _to_json(value, type_)
    plain = from_json(data)
    return Written(plain, plain if isinstance(plain, str) else data.decode())


def message_of(value: Any) -> str | None:
    """Return the `message` that a result carries for the reader, if it is a text that says something."""
    message = value.get("message") if isinstance(value, dict) else None
    return message if isinstance(message, str) and message else None


def shorten(text: str, limit: int | None) -> str:
    """Return `text`, or, if it is longer than `limit` characters, what the model is told in its place."""
    if limit is None or len(text) <= limit:
        return text
    told = f"the result is too long to be shown: {len(text)} characters, and at most {limit} are; ask for less of it"
    begin = text[: min(_SHOWN_OF_LONG, limit)]
    return f"{told}. It begins: {begin}" if begin else told


def _first(one: Any, other: Any) -> Any:
    """Return the first of the two that was given."""
    given = other if one is msgspec.UNSET else one
    return None if given is msgspec.UNSET else given


def _to_json(value: Any, type_: TypeAdapter[Any] | None) -> bytes:
    try:
        if type_ is None:
            return to_json(value, inf_nan_mode="null", fallback=msgspec.to_builtins)
        return type_.dump_json(value, by_alias=True, warnings=False, fallback=msgspec.to_builtins)
    except PydanticSerializationError:
        # Strings with half a surrogate pair come from file names and from cut texts. Anything else is refused again.
        loose = to_jsonable_python(value, inf_nan_mode="null", fallback=msgspec.to_builtins)
        text = compact(loose)
        return whole(text).encode()
