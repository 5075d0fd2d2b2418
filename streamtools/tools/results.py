"""Defines the results of tools and the outcomes of calls, and serializes results.

A result has a value for the interface and a text for the model. It is serialized to JSON, and the JSON is parsed to
plain values. So the values share no objects with the tool. The interface and the model get the same data, unless the
tool returns a `ToolResult`. If a result cannot be serialized, only its call fails. The stream continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from streamtools.calls import ToolCall
from streamtools.errors import CheckedStruct, Code, StreamToolsError
from streamtools.events import Error, Executed
from streamtools.json_values import compact, well_formed

if TYPE_CHECKING:
    from pydantic import TypeAdapter


class ToolError(StreamToolsError):
    """An exception that a tool raises to fail its call. The model and the interface get its message."""


class ToolResult(CheckedStruct, frozen=True, kw_only=True):
    """A return value of a tool, with different results for the model and the interface.

    `model` is the result for the model, and `ui` the result for the interface. If only one is set, both get it. With
    `stop=True`, the run ends after the running tools have finished. Calls that have not started when the tool returns
    are reported as pending.

    >>> write(ToolResult(model="3 rows", ui=[1, 2, 3]))
    Written(value=[1, 2, 3], text='3 rows', stop=False)
    """

    model: Any = msgspec.UNSET
    ui: Any = msgspec.UNSET
    stop: bool = False


class ToolOutcome(CheckedStruct, frozen=True, kw_only=True):
    """The outcome of one call. Each executed call has exactly one outcome.

    - `result` is the result for the interface, or None after an error. `text` is the result, or the error, as text for
      the model.
    - `error` is the error code, or None if the tool returned a result. `message` is the error text for the interface.
      If there is no error, it is the field `message` of the result, or None.
    - `elapsed` is the duration of the call, in seconds.
    - `stop` is True if the tool ends the run. `abandoned` is True if the thread of the tool could not be stopped and
      still runs.
    - `neutralize` is True if `text` must be neutralized before it is sent to the model as part of a user message. Text
      that looks like a call is then changed so that it is not parsed as one.
    - `exception` is the exception that the tool raised, with its traceback, or the error that replaces it, such as
      `ToolTimeout`. It is available in this process only: events and stored runs do not contain it.
    """

    call: ToolCall
    result: Any = None
    text: str
    error: Code | None = None
    message: str | None = None
    elapsed: float = 0.0
    stop: bool = False
    abandoned: bool = False
    neutralize: bool = True
    exception: BaseException | None = None

    def __repr__(self) -> str:
        """Show all fields except the exception, whose text may contain secrets."""
        fields = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "exception")
        return f"ToolOutcome({', '.join(fields)})"

    @classmethod
    def of_event(cls, event: Executed | Error) -> ToolOutcome:
        """Return the outcome that an event reports. The model gets what the interface has got."""
        if isinstance(event, Executed):
            text, message, elapsed = write(event.result).text, event.message, event.elapsed
            return cls(call=event.call, result=event.result, text=text, message=message, elapsed=elapsed)
        assert event.call is not None  # the event is the outcome of a call
        return cls(call=event.call, text=event.message, error=event.code, message=event.message)

    def event(self, seq: int) -> Executed | Error:
        """Return the event that reports the end of the call to the interface."""
        if self.error is None:
            return Executed(self.call, self.result, self.message, self.elapsed, seq)
        return Error(self.error, self.message or self.error, call_id=self.call.id, call=self.call, seq=seq)


class Written(NamedTuple):
    """A serialized result.

    `value` is the result as plain JSON values. `text` is the text for the model. `stop` is True if the tool ends the
    run.
    """

    value: Any
    text: str
    stop: bool = False


def write(value: Any, type_: TypeAdapter[Any] | None = None) -> Written:
    """Serialize the return value of a tool.

    For the model, a value whose JSON is a string (a str, a date, a path) becomes that string. Any other value becomes
    compact JSON. `NaN` and infinities become null. A lone surrogate becomes U+FFFD. `type_` serializes the value by its
    declared type, except for a `ToolResult`. If `type_` is None, the value's own type is used. Raises the serializer's
    errors.
    """
    if isinstance(value, ToolResult):
        given = value.model if value.ui is msgspec.UNSET else value.ui  # for the interface
        shown = write(None if given is msgspec.UNSET else given)
        return Written(shown.value, shown.text if value.model is msgspec.UNSET else write(value.model).text, value.stop)
    try:
        if type_ is None:
            data = to_json(value, inf_nan_mode="null", fallback=msgspec.to_builtins)
        else:
            data = type_.dump_json(value, by_alias=True, warnings=False, fallback=msgspec.to_builtins)
    except PydanticSerializationError:
        # Replace lone surrogates, which occur in file names and truncated texts. Any other invalid value fails again.
        loose = to_jsonable_python(value, inf_nan_mode="null", fallback=msgspec.to_builtins)
        data = well_formed(compact(loose)).encode()
    plain = from_json(data)
    return Written(plain, plain if isinstance(plain, str) else data.decode())
