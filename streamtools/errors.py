"""Defines error codes, and the exceptions that a caller may catch.

An error of a *model* or a *provider* never raises an exception. It is reported as an event with a `Code` and the raw
text. An error of the *caller* raises ValueError, TypeError, or one of the exceptions of this module. The message names
the wrong value. The exceptions of this module also report a limit, a shutdown, an incomplete recording, and a failed
tool that the caller ran by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache, wraps
from inspect import CO_VARKEYWORDS, Parameter, iscoroutinefunction, signature, unwrap
from types import CoroutineType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Never, Self, TypeAlias, TypeVar, get_args, get_origin

import msgspec

__all__ = [
    "CallRefused", "ClosedError", "Code", "ConversationBusy", "DecisionRefused", "Draining", "EventOrderError",
    "InvalidDecision", "InvalidMessages", "OwnerUnreachable", "RecordingError", "RefusalCode", "RunNotFound",
    "StreamToolsError", "TooManyRuns", "ToolCallFailed", "ToolFailed", "ToolInputError", "ToolOutputError",
    "ToolTimeout", "UnknownTool", "UnreadableSource", "UnrecordedRequest",
]  # fmt: skip


class Code(StrEnum):
    """Stable codes of `error` and `warning` events. An interface may choose its reaction by code."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"  # the repr of an event contains it, and must be valid Python

    # Codes of malformed calls.
    INVALID_JSON = "invalid_json"
    """The body of a call is not JSON."""
    MISSING_TOOL_NAME = "missing_tool_name"
    """The call does not name a tool."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments are neither a JSON object nor a string that contains one, or an argument cannot be read."""
    CONFLICTING_FIELDS = "conflicting_fields"
    """Two spellings of the same field, such as `name` and `tool`, have different values."""
    UNRECOGNISED_TOOL_CALL = "unrecognised_tool_call"
    """The text is not a call, its JSON is not an object, or the end of its last argument is not certain."""
    TRUNCATED = "truncated"
    """The stream or the turn ended inside the call, or a frame that may have been part of the call was lost."""
    TOO_LARGE = "too_large"
    """The call is longer than `Limits.call`, or has more values than `Limits.values`."""
    TOO_DEEP = "too_deep"
    """The JSON nests deeper than `Limits.depth`."""
    TOO_MANY_CALLS = "too_many_calls"
    """The turn holds more calls than `Limits.calls`."""
    DUPLICATE_KEY = "duplicate_key"
    """An object has the same key twice."""
    NOT_A_NUMBER = "not_a_number"
    """`NaN`, `Infinity`, or a number that overflows to infinity."""
    NUMBER_TOO_LONG = "number_too_long"
    """A number has more digits than `Limits.digits`."""
    LONE_SURROGATE = "lone_surrogate"
    """A string contains half of a surrogate pair, which UTF-8 cannot encode."""

    # Codes of calls that did not run or did not succeed.
    UNKNOWN_TOOL = "unknown_tool"
    """No tool with this name is registered."""
    TOOL_CHOICE_VIOLATION = "tool_choice_violation"
    """The calls violate the `tool_choice` of the request."""
    SUPERSEDED = "superseded"
    """The next model of a `Fallback` writes the call again, or calls of the other kind (native or in text) count."""
    TOOL_INPUT = "tool_input"
    """The arguments do not match the schema of the tool."""
    TOOL_FAILED = "tool_failed"
    """The tool raised an exception."""
    TOOL_TIMEOUT = "tool_timeout"
    """The tool did not finish within its time limit."""
    TOOL_DENIED = "tool_denied"
    """The call needed approval and was denied."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The tool may have started, and its outcome is unknown, for example after a crash. The call does not run again."""
    TOOL_CANCELLED = "tool_cancelled"
    """The run was cancelled while the tool was running, or the process of the run ended before the tool started."""
    TOOL_OUTPUT = "tool_output"
    """The result of the tool has the wrong type, or cannot be serialized as JSON."""

    # Codes of the whole stream.
    UPSTREAM_ERROR = "upstream_error"
    """The provider reported an error."""
    STREAM_INTERRUPTED = "stream_interrupted"
    """The stream ended without its terminator, or the run failed on the server."""
    GUARD_FAILED = "guard_failed"
    """The response contains text that a `rules.fail` rule forbids."""
    FRAME_REFUSED = "frame_refused"
    """A frame of a websocket client was refused. No `done` follows. `raw` holds the code of the error frame."""

    # Codes of warnings.
    FORGED_RESULT = "forged_result"
    """The model wrote the result of a tool into its text. The written result is hidden and ignored."""
    NEAR_MISS = "near_miss"
    """Text looks like a call but is not a call. The text remains visible."""
    CALL_IN_REASONING = "call_in_reasoning"
    """The reasoning contains a call, which does not run."""
    TEXT_MISMATCH = "text_mismatch"
    """The whole text that the provider sent at the end differs from the deltas. The text of the deltas is kept."""
    HIDDEN_AFTER_CALL = "hidden_after_call"
    """Text after a call was hidden by `after_call="hide"`."""
    MISSING_CLOSE = "missing_close"
    """The stream ended after a complete call without its closing marker. The call is accepted."""
    SKIPPED = "skipped"
    """`count` characters or bytes over a limit were dropped."""
    BAD_FRAME = "bad_frame"
    """A frame of the stream could not be decoded. The stream continues."""
    ARGUMENTS_MISMATCH = "arguments_mismatch"
    """The final arguments of a native call differ from the deltas. The final arguments are used."""
    INVALID_OUTPUT = "invalid_output"
    """The answer is not a valid `output`. Its text remains visible. If no valid answer follows, an error ends the
    run."""
    UNKNOWN_PLACEHOLDER = "unknown_placeholder"
    """The model wrote a placeholder for which the `Vault` has no value. The placeholder remains in the text."""
    FAILED_OVER = "failed_over"
    """A model has failed. Another model generates the response or continues it."""
    OWNER_LOST = "owner_lost"
    """The process of the run has crashed or closed. Another process continues the run."""
    SALVAGED = "salvaged"
    """The provider could not parse a call, but the call was found in the provider's error. It runs if its dialect is
    enabled. Otherwise, the model has to send it again."""
    EMULATED = "emulated"
    """A separate request let the model decide which tools are needed, because `emulation` is on."""
    UNKNOWN_DROPPED = "unknown_dropped"
    """An emulation decision names tools that do not exist. These names are ignored."""
    DECISIONS_DIFFER = "decisions_differ"
    """An emulation response has several decisions. The last decision is used, without calls that need approval or
    trust."""
    DECISION_UNREADABLE = "decision_unreadable"
    """The emulation decision could not be read. No tool is called."""
    NOT_EMULATED = "not_emulated"
    """Emulation was requested, but the request has only the provider's own tools."""
    UNDECLARED_NATIVE = "undeclared_native"
    """A model that was declared with `native_tool_calls=False` made a native call."""
    ABANDONED = "abandoned"
    """The thread of a tool cannot be stopped after a timeout or a cancellation. Its late result is dropped."""
    RESULT_TOO_LONG = "result_too_long"
    """A result exceeds `result_limit`, so the model receives an excerpt."""
    RESYNC = "resync"
    """Some events after the reader's position are no longer stored. Or the position is after the last event of the run,
    and all events follow."""
    DUPLICATE_TOOL = "duplicate_tool"
    """A tool with this name was already registered. This code appears only in the log."""


RefusalCode: TypeAlias = Literal[
    "already_decided", "busy", "decision_refused", "ending", "expired", "invalid_body", "invalid_decision",
    "invalid_messages", "not_waiting", "request_timeout", "run_not_found", "stopped", "too_large", "too_many_bodies",
    "too_many_runs", "too_many_runs_of_owner", "unreachable", "wrong_digest", "wrong_kind",
]  # fmt: skip
"""Why a request is refused: the `code` of an exception, in the body of its response or in the frame of its error."""


def nearest(name: str, known: Iterable[str], cutoff: float = 0.8) -> str | None:
    """Return the most similar known name, or None. Upper and lower case, and the order of letters, may differ.

    `cutoff` is the least similarity, from 0 to 1. Of equally similar names, the first is returned.
    """
    from difflib import SequenceMatcher  # imported here because it is rarely needed

    matcher = SequenceMatcher(b=name.lower())

    def similarity(one: str) -> float:
        matcher.set_seq1(one.lower())
        most = matcher.quick_ratio()  # 1 if only the order differs. It saves 94 of 98 ms for 1,000 names
        return matcher.ratio() if cutoff <= most < 1 else most

    best = max(known, key=similarity, default="")
    return best if similarity(best) >= cutoff else None


def did_you_mean(name: str, known: Iterable[str], homes: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a suggestion for the end of an error message about an unknown name, or an empty string.

    `homes` has other texts for some of the known names.
    """
    meant = nearest(name, known)
    return f"; did you mean {homes.get(meant, repr(meant))}?" if meant else ""


_SYNONYMS = {
    "log": "store", "upstream": "api", "user": "owner", "thread_id": "conversation", "metadata": "note", "ttl": "keep",
    "media_type": "format", "encoder": "format", "last_event_id": "after", "heartbeat": "keep_alive",
    "needs_approval": "requires_approval", "args_schema": "parameters", "input_schema": "parameters",
}  # fmt: skip


def check_names(
    where: str,
    given: Iterable[str],
    known: Collection[str],
    homes: Mapping[str, str] = MappingProxyType({}),
    advice: str = "",
) -> None:
    """Raise TypeError if `where`, a function or a class, was given a parameter that is not in `known`.

    `homes` has the parameters of other objects: each name, with the text that shows how to pass it. `advice` is the end
    of the message for a name that is similar to no known name.
    """
    for name in given:
        if name not in known:
            meant = f"; write {homes[name]}" if name in homes else did_you_mean(name, [*known, *homes], homes)
            related = (each for each in known if each in name or name in each or each == _SYNONYMS.get(name))
            similar = next((f"; did you mean {each!r}?" for each in related), ";")
            others = advice.format(name) or f"{similar} the parameters are {', '.join(known)}"
            raise TypeError(f"{where} has no parameter {name!r}{meant or others}")


def check_word(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raise ValueError if the `value` of the option `name` is not allowed."""
    if value not in (values := [*allowed]):
        meant = did_you_mean(value, filter(None, map(str, values))) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, values))}, got {value!r}{meant}")


def check_kind(name: str, given: object, kind: type, *, optional: bool = False) -> None:
    """Raise TypeError if `given` is not an instance of `kind`. `name` is the name of the parameter.

    If `kind` is a dataclass, the message shows how to make one. With `optional`, `given` may be None.
    """
    if not (isinstance(given, kind) or (optional and given is None)):
        known = sorted(getattr(kind, "__annotations__", ()), key=lambda each: each not in type(given).__name__.lower())
        fields = [*(given if isinstance(given, Mapping) else ()), *known]
        example = f", such as {kind.__name__}({fields[0]}=...)" if is_dataclass(kind) else ""
        article = "an" if kind.__name__[0] in "AEIOaeio" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}{example}, got {described(given)}")


def check_function(
    name: str, given: object, *arguments: str, advice: str = "", optional: bool = False, may_wait: bool = True
) -> None:
    """Raise TypeError if `given` cannot be called with one positional argument for each name in `arguments`.

    `advice` is added to the message. With `optional`, `given` may be None. Without `may_wait`, it must not be
    `async def`.
    """
    if given is None and optional:
        return
    if not may_wait and iscoroutinefunction(given):
        raise TypeError(f"{name} must not be `async def`: it must return its result without waiting")
    shown = ""
    try:
        accepted = signature(given)  # type: ignore[arg-type]  # raises TypeError if it is not callable
        shown = f"{getattr(given, '__name__', type(given).__name__)}({', '.join(accepted.parameters)})"
        accepted.bind(*arguments)
    except ValueError:  # a built-in function that does not report its parameters
        return
    except TypeError:
        call = f"{name.rpartition(' ')[2]}({', '.join(arguments)})"
        raise TypeError(f"{name} must be callable as {call}, got {shown or described(given)}{advice}") from None


def check_number(
    name: str, value: object, least: float | None = None, *, whole: bool = False, optional: bool = False
) -> None:
    """Raise ValueError if the `value` of the option `name` is not a number, or is below `least`.

    Without `least`, the value must be above 0. With `whole`, it must be an integer. With `optional`, it may be None.
    """
    if value is None and optional:
        return
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not (is_number and (value > 0 if least is None else value >= least)):  # type: ignore[operator]
        bound = "a positive number" if least is None else f"{'an integer' if whole else 'a number'} of at least {least}"
        raise ValueError(f"{name} must be {bound}{' or None' if optional else ''}, got {value!r}")


def check_methods(name: str, given: object, example: str, *methods: str, optional: bool = False) -> None:
    """Raise TypeError if `given` is not an object with these methods. With `optional`, it may be None.

    `example` describes such an object.
    """
    if not (has_methods(given, *methods) or (optional and given is None)):
        raise TypeError(f"{name} must be {example}, got {described(given)}")


def has_methods(value: object, *names: str) -> bool:
    """Return whether `value` is an object with these methods. Returns False for a class."""
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


def described(value: object) -> str:
    """Return the type of a wrong value for an error message. Adds advice for a value that must be called or awaited."""
    if isinstance(value, CoroutineType):
        value.close()  # prevents Python's warning that the coroutine was never awaited
        return "a coroutine; await it first"
    if isinstance(value, type | FunctionType):
        return f"{value.__name__}, which must be called: {value.__name__}(...)"
    return type(value).__name__


def place_of(function: Any) -> str:
    """Return the name, the file and the line of a function or a running asynchronous generator of the application."""
    code = getattr(unwrap(function), "__code__", None) or getattr(function, "ag_code", None)
    place = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    return f"{getattr(function, '__qualname__', type(function).__name__)}{place}"


def check_result(name: str, function: Any, result: object, kinds: Any, expected: str) -> None:
    """Raise TypeError if `result` is not of the `kinds`. `function`, the value of the parameter `name`, returned it.

    `expected` describes such a result.
    """
    if not isinstance(result, kinds):
        raise TypeError(f"{name} must return {expected}, but {place_of(function)} returned {described(result)}")


_Callable = TypeVar("_Callable", bound=Callable[..., Any])


def checked(function: _Callable) -> _Callable:
    """Return `function` with the error messages of `Checked`. The arguments are checked only after a TypeError.

    A function is returned unchanged if it has no keyword-only parameters or accepts any name.
    """
    if function.__code__.co_flags & CO_VARKEYWORDS or not function.__code__.co_kwonlyargcount:
        return function

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        return _explain(function.__qualname__, function, function, given, named)

    return call  # type: ignore[return-value]  # it has the same parameters


class ListsNames:
    """A base class. The AttributeError for an unknown name lists the public names of the object.

    `_other_names` maps names that other objects or libraries have to advice, in which `{0}` is the name.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # with a `__getattr__`, a type checker would accept any name
        _other_names = MappingProxyType({})

        def __getattr__(self, name: str) -> Never:
            known = "" if name.startswith("_") else ", ".join(each for each in dir(self) if not each.startswith("_"))
            advice = self._other_names.get(name, "").format(name) or (known and f"it has {known}")
            if hasattr(type(self), "_is_unread"):
                self._is_unread = False  # a stream does not also log that it was not read
            message = f"{type(self).__name__!r} object has no attribute {name!r}{advice and f'; {advice}'}"
            raise AttributeError(message, name=name, obj=self)


class ChecksArguments:
    """A base class. Its constructor raises TypeError for an unknown parameter, and suggests a similar name.

    It also raises TypeError if a keyword-only parameter is passed without its name. Public methods with keyword-only
    parameters check their arguments in the same way. The constructor raises ValueError for a value that the annotation
    `bool` or `Literal[…]` of its parameter does not allow.
    """

    _called: ClassVar[str] = ""  # the name in messages, if it differs from the name of the class

    def __new__(cls, *given: Any, **named: Any) -> Self:
        _check_arguments(cls._called or cls.__name__, cls.__init__, (cls, *given), named)
        choices = _choices_of(cls.__init__)
        for name, value in named.items():
            if name in choices and value not in choices[name]:
                check_word(name, value, choices[name])
        return super().__new__(cls)

    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, None]]:  # `copy` and `pickle` pass these to `__new__`
        return (), dict.fromkeys(_parameters_of(type(self).__init__)[3][1:])

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, value in [*vars(cls).items()]:
            if isinstance(value, FunctionType) and not name.startswith("_"):
                setattr(cls, name, checked(value))


class Checked(ListsNames, ChecksArguments):
    """The base class of objects that users make. Encoders and logs lack `ListsNames`.

    With its `__getattr__`, reading an attribute takes 47 ns and not 10 ns.
    """


class _StructMeta(msgspec.StructMeta):
    def __call__(self, *given: Any, **named: Any) -> Any:  # `self` is the class
        return _explain(self.__name__, self, super().__call__, given, named)


class CheckedStruct(ListsNames, msgspec.Struct, frozen=True, metaclass=_StructMeta):
    """A base class of structs that users make. Its messages are those of `Checked`."""


def _explain(name: str, function: Callable[..., Any], call: Callable[..., Any], given: Any, named: Any) -> Any:
    """Return the result of `call`. If it raises TypeError, check the arguments of `function` first."""
    try:
        return call(*given, **named)
    except TypeError:
        _check_arguments(name, function, given, named)
        raise


def _check_arguments(name: str, function: Callable[..., Any], given: Sequence[Any], named: Iterable[str]) -> None:
    """Raise TypeError for an unknown or a missing parameter, and for a keyword-only parameter without its name."""
    unnamed, known, accepts_any, required = _parameters_of(function)
    own = ("self",) if known[:1] == ["self"] else ()
    if not accepts_any:
        check_names(f"{name}()", named, known[len(own) :])
    if unnamed is not None and len(given) > len(unnamed):
        names = ", ".join(f"{each}=..." for each in known if each not in unnamed)
        accepted = f"only {', '.join(unnamed[len(own) :])}" if unnamed[len(own) :] else "no value"
        raise TypeError(f"{name}() takes {accepted} without a name{names and f'; write {names}'}")
    positional = (unnamed or [])[: len(given)]
    if twice := [each for each in positional if each in named]:
        raise TypeError(f"{name}() got {twice[0]} twice: without a name and as {twice[0]}=...")
    if missing := [each for each in required if each not in {*named, *known[: len(given)]}]:
        raise TypeError(f"{name}() needs a value for {' and '.join(missing)}")


@cache  # reading a signature takes as long as parsing a small call
def _parameters_of(function: Callable[..., object]) -> tuple[list[str] | None, list[str], bool, list[str]]:
    """Return the positional parameters, all parameters, whether any name is accepted, and the required parameters.

    The first value is None if the function accepts any number of positional values.
    """
    parameters = signature(function).parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    unnamed = [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    named = [each.name for each in parameters if each.kind is Parameter.KEYWORD_ONLY]
    required = [each.name for each in parameters if each.default is each.empty and each.name in (*unnamed, *named)]
    is_open = Parameter.VAR_POSITIONAL in kinds
    return None if is_open else unnamed, unnamed + named, Parameter.VAR_KEYWORD in kinds, required


@cache
def _choices_of(function: Callable[..., object]) -> dict[str, list[object]]:
    """Return the allowed values of each parameter whose annotation is `bool` or a `Literal`, or one of them or None.

    In this package, annotations are texts, such as `"Literal['start', 'end'] | None"` or the name of an alias.
    """
    choices = dict[str, list[object]]()
    for name, annotation in getattr(function, "__annotations__", {}).items():
        kind, _, optional = str(annotation).partition(" | ")
        alias, values = getattr(function, "__globals__", {}).get(kind), list[object]()
        if kind == "bool":
            values = [True, False]
        elif kind.startswith("Literal["):
            values += (each.strip("\"'") for each in kind[len("Literal[") : -1].split(", "))
        elif get_origin(alias) is Literal:
            values += get_args(alias)
        if values and optional in ("", "None"):
            choices[name] = [*values, None] if optional else values
    return choices


class AsyncOnly:
    """A base class of objects that are used with `async`. A `for` or a `with` without `async` raises TypeError."""

    if not TYPE_CHECKING:  # if a type checker saw these methods, it would not report the uses

        def __iter__(self) -> Never:
            self._is_unread = False  # a stream does not also log that it was not read
            raise TypeError(f"write `await`, or `async for` inside `async with`: {type(self).__name__} is asynchronous")

        def __enter__(self) -> Never:
            self._is_unread = False
            raise TypeError(f"write `async with`: {type(self).__name__} is asynchronous")

        __exit__ = __enter__


class StreamToolsError(Exception):
    """The base class of all exceptions of streamtools."""


class ClosedError(StreamToolsError):
    """A parser, machine or stream was used after it was closed."""


class RecordingError(StreamToolsError):
    """A file is not a recording, or is incomplete. The message names the file and the line."""


class _AnsweredError(StreamToolsError):
    """An exception for which `asgi.exception_handlers` has a response. Its traceback says so."""

    code: RefusalCode

    def __init__(self, *given: object, code: RefusalCode | None = None) -> None:
        super().__init__(*given)
        self.code = code or self.code
        self.add_note("To answer it with a status other than 500, write exception_handlers=asgi.exception_handlers.")


class RunNotFound(_AnsweredError, LookupError):
    """The run does not exist for this user: it never existed, belongs to another user, or is no longer stored."""

    code = "run_not_found"


class OwnerUnreachable(_AnsweredError, TimeoutError):
    """The process that drives a run, or Redis, did not respond in time. Both may still have received the request."""

    code = "unreachable"


class Draining(_AnsweredError, ClosedError):
    """The server is shutting down. Active runs finish, and new runs are refused."""

    code = "ending"


class TooManyRuns(_AnsweredError):
    """Too many runs are active. The `code` is `too_many_runs_of_owner` if these are the runs of one user."""

    code: RefusalCode = "too_many_runs"


class ConversationBusy(_AnsweredError):
    """A run of the conversation is active or waits for decisions, so no other one may start."""

    code = "busy"


class EventOrderError(StreamToolsError, ValueError):
    """An event violates the order of events.

    `place` is the position of the event, counted from 1. `event` is None if an event is missing at the end of the run.
    `rule` describes the violated rule.
    """

    def __init__(self, place: int, event: object, rule: str) -> None:
        call = getattr(event, "call", None)
        call_id = getattr(call, "id", getattr(event, "call_id", None))
        name = getattr(event, "type", type(event).__name__) + (f" of {call_id}" if call_id else "")
        super().__init__(f"at the end: {rule}" if event is None else f"event {place}, {name}: {rule}")
        self.place = place
        self.event = event
        self.rule = rule


class UnrecordedRequest(RecordingError, LookupError):
    """No recording contains this request. The message says how the most similar recorded request differs."""


class UnreadableSource(StreamToolsError, TypeError):
    """No adapter can read a source, or the handler of a websocket returned no stream."""


class DecisionRefused(StreamToolsError, ValueError):
    """A decision about a call is refused. The `code` is the reason:

    - `not_waiting`: The call does not wait for a decision.
    - `wrong_kind`: It waits for another kind of decision.
    - `already_decided`: An earlier decision about the call differs.
    - `expired`: The question has expired.
    - `stopped`: The run was stopped.
    - `wrong_digest`: The decision was made for a call with other content.
    - `decision_refused`: The application has raised this exception.
    """

    code: RefusalCode = "decision_refused"

    def __init__(self, *given: object, code: RefusalCode = "decision_refused") -> None:
        super().__init__(*given)
        self.code = code


class InvalidDecision(DecisionRefused):
    """The JSON of a request is not a decision. The `code` is `invalid_decision`."""


class InvalidMessages(_AnsweredError, ValueError):
    """A client has sent messages that are invalid, or that a client must not send."""

    code = "invalid_messages"


class CallRefused(StreamToolsError):
    """The ledger, which records calls, refuses to start a call: it is full, or another process took over the run."""


class ToolCallFailed(StreamToolsError):
    """A tool that the caller ran by name did not return a usable result. `name` is the name of the tool."""

    code = Code.TOOL_FAILED

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class UnknownTool(ToolCallFailed, LookupError):
    """No tool with this name is registered. The message lists the registered tools."""

    code = Code.UNKNOWN_TOOL


class ToolInputError(ToolCallFailed, ValueError):
    """The arguments do not match the schema of the tool. The message names the path but repeats no values."""

    code = Code.TOOL_INPUT
    parameters: Collection[str] = ()
    """The names of the parameters whose values do not match. A parameter that the tool does not have is left out."""


class ToolFailed(ToolCallFailed):
    """The tool raised an exception, which is the `__cause__`."""


class ToolTimeout(ToolCallFailed, TimeoutError):
    """The tool did not finish within its time limit."""

    code = Code.TOOL_TIMEOUT


class ToolOutputError(ToolCallFailed):
    """The result of the tool has the wrong type, or cannot be serialized as JSON."""

    code = Code.TOOL_OUTPUT
