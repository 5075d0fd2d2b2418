"""One call, as its tool sees it, and what comes out of it: one value for the interface, one text for the model.

A tool returns whatever suits it. It is written as JSON once, here, and read back, so that what travels on is built of
plain values that every later stage can send, shares nothing with the tool's own objects, and says the same to the
interface as to the model. What cannot be written is the tool's fault and ends its call, never the stream.

A function asks for its call by annotation, under any name: `def search(query: str, context: ToolContext)`; the model
does not see that parameter. One object serves coroutines and threads alike: what a thread may touch are plain
attributes, and progress, which is handed over to the event loop.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import anyio
import anyio.from_thread
import msgspec
from pydantic_core import PydanticSerializationError, from_json, to_json, to_jsonable_python

from streamtools.calls import ToolCall
from streamtools.errors import Code, StreamToolsError
from streamtools.events import Error, Executed
from streamtools.json_values import compact, whole

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from typing_extensions import TypeVar as TypeVarWithDefault

    State = TypeVarWithDefault("State", default=Any)
else:
    State = TypeVar("State")


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


def _first(one: Any, other: Any) -> Any:
    given = other if one is msgspec.UNSET else one
    return None if given is msgspec.UNSET else given


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one call ended. Each call that a runner was given has exactly one.

    `result` is for the interface (None after an error) and `text` for the model, which reads errors too. `error`
    is None if the tool has answered; `message` is the answer's own, or what the interface may show of the error.
    `elapsed` is in seconds. `stop`: the tool wants the run to end. `abandoned`: its thread could not be stopped and has
    been left behind. `neutralise`: in `text` that goes to the model inside a text, nothing may look like structure.

    `exception` is what the tool has raised, with its traceback, or what was raised in its place: `ToolTimeout`, say, or
    `ToolInputError`. It stays in this process: neither events nor what is stored of a run have it.
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
        """All but the exception, whose text may hold anything."""
        fields = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name != "exception")
        return f"ToolOutcome({', '.join(fields)})"

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
    try:
        if type_ is None:
            data = to_json(value, inf_nan_mode="null", fallback=msgspec.to_builtins)
        else:
            data = type_.dump_json(value, by_alias=True, warnings=False, fallback=msgspec.to_builtins)
    except PydanticSerializationError:
        # Strings with half a surrogate pair come from file names and from cut texts. Anything else is refused again.
        loose = to_jsonable_python(value, inf_nan_mode="null", fallback=msgspec.to_builtins)
        data = whole(compact(loose)).encode()
    plain = from_json(data)
    return Written(plain, plain if isinstance(plain, str) else data.decode())


Report = Callable[[Any], Awaitable[object]]
"""Takes what a tool says while it works, in the event loop; waits while nobody reads."""


class CallEnded(StreamToolsError):
    """Raised by `ToolContext.progress()` in a thread whose call has ended."""


async def unheard(progress: Any) -> None:
    """Take what nobody waits for: progress, or an event."""


class ToolContext(Generic[State]):
    """One call, as its tool sees it.

    `call_id` and `name` are those of the call; `state` is whatever the application passed for its tools (a user, a
    database), and `ToolContext[Session]` says of what type it is.

    >>> context = ToolContext("call_1", "search", state={"user": "Ann"})
    >>> context.state["user"], context.cancelled, context.remaining
    ('Ann', False, inf)
    """

    __slots__ = ("_loop_thread", "call_id", "cancelled", "deadline", "name", "report", "state")

    def __init__(
        self,
        call_id: str = "",
        name: str = "",
        *,
        state: State = None,  # type: ignore[assignment]  # as long as nobody passes one
        report: Report = unheard,
    ) -> None:
        """Make a context in the event loop's thread; without arguments, one to call a tool's function with by hand."""
        self.call_id = call_id
        self.name = name
        self.state = state
        self.cancelled = False
        """Whether nobody waits for this call any more: it ran out of time, or its run was left. For threads, which
        cannot be stopped, to look at; a coroutine is cancelled where it waits."""
        self.deadline = math.inf
        """When the call runs out of time, in seconds of `time.monotonic()`."""
        self.report = report
        """Takes progress in the event loop's thread."""
        self._loop_thread = threading.get_ident()

    @property
    def remaining(self) -> float:
        """The seconds that are left before the call runs out of time; never less than 0."""
        return max(0.0, self.deadline - time.monotonic())

    def progress(self, data: Any) -> Awaitable[None]:
        """Tell the interface how far the tool is; `data` is anything that can be written as JSON, not for the model.

        In a coroutine, await it. In a thread, just call it: it returns when the progress has been taken, and raises
        `CallEnded` if the call has ended meanwhile, so that the thread ends too.
        """
        if self.report is unheard:
            return _Taken()
        if threading.get_ident() == self._loop_thread:
            return self._tell(data)
        if not self.cancelled:
            anyio.from_thread.run(self._tell, data)
        if self.cancelled:
            raise CallEnded(f"the call of tool {self.name!r} has ended")
        return _Taken()

    async def _tell(self, data: Any) -> None:
        if not self.cancelled:
            await self.report(data)


class _Taken:
    """Awaits nothing: the progress of a thread has been taken when `progress` returns."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


# Whether code that we called has failed, or we ourselves are to stop: both come as exceptions, and look alike.
#
# On asyncio a `CancelledError` that nobody sent to our task (the tool awaited something that was cancelled) is a
# failure, since it would otherwise end the task without a word. `SystemExit`, `KeyboardInterrupt` and other exceptions
# outside `Exception` are meant for the program.


def is_failure(error: BaseException) -> bool:
    """Return whether code that we called has failed, rather than we are to stop. Call it where it was caught."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_failure, error.exceptions))
    if isinstance(error, asyncio.CancelledError):
        return is_stray(error)
    return isinstance(error, Exception | GeneratorExit)


def is_stray(error: BaseException) -> bool:
    """Return whether this is a `CancelledError` that nobody has sent to our task. Call it where it was caught."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    if anyio.get_cancelled_exc_class() is not asyncio.CancelledError:
        return True  # trio has an exception of its own
    task = asyncio.current_task()  # asyncio may be cancelling it by itself, or for a cancel scope around us
    return anyio.current_effective_deadline() != -math.inf and (task is None or task.cancelling() == 0)
