"""What a tool returns, and the outcome of its call: a value for the interface and a text for the model.

A result is serialized to JSON once, here, and read back. So later stages get plain values that share nothing with the
tool's own objects, and the interface and the model see the same. A result that cannot be serialized fails its call,
never the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from streamtools.calls import ToolCall
from streamtools.errors import Code, StreamToolsError
from streamtools.events import Error, Executed
from streamtools.json_values import compact, whole

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class ToolError(StreamToolsError):
    """Raise it in a tool to fail the call. The model and the interface read its message unchanged."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """Return it from a tool to give the model and the interface different results.

    `model` is for the model and `ui` for the interface; each defaults to the other. With `stop=True` the run ends after
    the running tools have finished, and calls that have not started stay pending.

    >>> write(ToolResult(model="3 rows", ui=[1, 2, 3]))
    Written(value=[1, 2, 3], text='3 rows', stop=False)
    """

    model: Any = msgspec.UNSET
    ui: Any = msgspec.UNSET
    stop: bool = False


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one call ended. Each executed call has exactly one outcome.

    - `result` is for the interface, None after an error. `text` is for the model, which reads errors too.
    - `error` is the error code, None if the tool returned. `message` is the result's own `message`, or the error text
      that the interface may show.
    - `elapsed` is in seconds.
    - `stop`: the tool ends the run. `abandoned`: its thread could not be stopped and still runs. `neutralise`: when
      `text` is sent to the model inside other text, anything that looks like a call is defused.
    - `exception` is what the tool raised, with its traceback, or the error raised in its place, such as `ToolTimeout`.
      It stays in this process: events and stored runs do not contain it.
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
    exception: BaseException | None = None

    def __repr__(self) -> str:
        """Show all fields except the exception, whose text may contain secrets."""
        fields = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "exception")
        return f"ToolOutcome({', '.join(fields)})"

    def event(self, seq: int) -> Executed | Error:
        """Return the event that ends the call."""
        if self.error is None:
            return Executed(self.call, self.result, self.message, self.elapsed, seq)
        return Error(self.error, self.message or self.error, call_id=self.call.id, call=self.call, seq=seq)


class Written(NamedTuple):
    """A serialized result: plain JSON values, the text for the model, and whether the tool ends the run."""

    value: Any
    text: str
    stop: bool = False


def write(value: Any, type_: TypeAdapter[Any] | None = None) -> Written:
    """Serialize the return value of a tool.

    A string stays as it is; everything else becomes compact JSON. `NaN` and infinities become null, a lone surrogate
    becomes U+FFFD. Raises what the serializer of the value raises.
    """
    if isinstance(value, ToolResult):
        given = value.model if value.ui is msgspec.UNSET else value.ui
        shown = write(None if given is msgspec.UNSET else given)
        return Written(shown.value, shown.text if value.model is msgspec.UNSET else write(value.model).text, value.stop)
    try:
        if type_ is None:
            data = to_json(value, inf_nan_mode="null", fallback=msgspec.to_builtins)
        else:
            data = type_.dump_json(value, by_alias=True, warnings=False, fallback=msgspec.to_builtins)
    except PydanticSerializationError:
        # Lone surrogates come from file names and truncated texts. Any other value fails again here.
        loose = to_jsonable_python(value, inf_nan_mode="null", fallback=msgspec.to_builtins)
        data = whole(compact(loose)).encode()
    plain = from_json(data)
    return Written(plain, plain if isinstance(plain, str) else data.decode())
