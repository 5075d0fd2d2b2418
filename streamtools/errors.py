"""What can go wrong, and what a caller may catch.

Two kinds of wrong are kept apart. What a *model* or a *provider* does badly is data: an event that carries a `Code`
and the raw text, never an exception. What our *caller* does badly, and what a tool does when it is called by hand,
raises one of the few exceptions below; each names the value that was wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Code(StrEnum):
    """Stable names for what an `error` or a `warning` event reports; interfaces may switch on them."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"  # Python, as the repr of an event that holds it has to be

    # A call that the model wrote badly.
    INVALID_JSON = "invalid_json"
    """The body of a call is not JSON."""
    MISSING_TOOL_NAME = "missing_tool_name"
    """A well-formed object under a marker names no tool."""
    INVALID_ARGUMENTS = "invalid_arguments"
    """The arguments are neither an object nor a string that holds one."""
    CONFLICTING_FIELDS = "conflicting_fields"
    """Two spellings of the same field (`name` and `tool`, say) hold different values."""
    UNRECOGNISED_TOOL_CALL = "unrecognised_tool_call"
    """The body of a call is JSON, but not an object."""
    TRUNCATED = "truncated"
    """The stream or the turn ended inside the call, or a frame that may belong to it was lost."""
    TOO_LARGE = "too_large"
    """The call is longer than `Limits.call`."""
    TOO_DEEP = "too_deep"
    """The JSON nests deeper than `Limits.depth`."""
    TOO_MANY_CALLS = "too_many_calls"
    """The turn holds more calls than `Limits.calls`."""
    DUPLICATE_KEY = "duplicate_key"
    """An object has the same key twice; parsers would disagree about its value."""
    NOT_A_NUMBER = "not_a_number"
    """`NaN`, `Infinity`, or a number that overflows to infinity: JSON has none of them."""
    NUMBER_TOO_LONG = "number_too_long"
    """A number has more digits than `Limits.digits`."""
    LONE_SURROGATE = "lone_surrogate"
    """A string holds half of a surrogate pair, which no UTF-8 text can."""

    # A call that was not run, or did not succeed.
    UNKNOWN_TOOL = "unknown_tool"
    """No tool of that name is registered."""
    TOOL_CHOICE_VIOLATION = "tool_choice_violation"
    """The model did not keep to the `tool_choice` of the request."""
    SUPERSEDED = "superseded"
    """The turn holds native calls and calls in text, and the other kind counts."""
    TOOL_INPUT = "tool_input"
    """The arguments do not fit the tool's schema."""
    TOOL_FAILED = "tool_failed"
    """The tool raised an exception."""
    TOOL_TIMEOUT = "tool_timeout"
    """The tool did not finish within its time limit."""
    TOOL_DENIED = "tool_denied"
    """The call needed approval and was denied."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The tool may have started earlier and its outcome is unknown, for example because its process died. It does not
    run again."""
    TOOL_CANCELLED = "tool_cancelled"
    """The run was cancelled while the tool was running."""
    TOOL_OUTPUT = "tool_output"
    """The tool returned a value that cannot be written as JSON."""

    # The stream itself.
    UPSTREAM_ERROR = "upstream_error"
    """The provider reported an error."""
    STREAM_INTERRUPTED = "stream_interrupted"
    """The stream ended without its terminator."""
    GUARD_FAILED = "guard_failed"
    """The answer contains text that a `rules.fail` rule forbids."""

    # Warnings.
    FORGED_RESULT = "forged_result"
    """The model wrote a tool result itself; it is hidden and ignored."""
    NEAR_MISS = "near_miss"
    """Text looked like a call and was not one; it stays visible."""
    CALL_IN_REASONING = "call_in_reasoning"
    """The reasoning contains what would be a call outside of it; it was not run."""
    TEXT_MISMATCH = "text_mismatch"
    """The provider's completed text differs from its deltas; the shown text is kept."""
    HIDDEN_AFTER_CALL = "hidden_after_call"
    """Text after a call was hidden by `after_call="hide"`."""
    MISSING_CLOSE = "missing_close"
    """A complete call lacks its closing marker at the end of the stream; it counts."""
    SKIPPED = "skipped"
    """`count` characters or bytes were dropped unread because a limit was reached."""
    BAD_FRAME = "bad_frame"
    """A frame of the stream could not be decoded; the stream goes on."""
    ARGUMENTS_MISMATCH = "arguments_mismatch"
    """The arguments that the provider sends at the end of a native call differ from its deltas; the end counts."""
    INVALID_OUTPUT = "invalid_output"
    """The answer is not a valid `output`; it stays visible."""
    FAILED_OVER = "failed_over"
    """A model has failed, and another one gives the answer, or the rest of it."""
    SALVAGED = "salvaged"
    """The provider refused to read a call, which was found in what the model had written; it runs if its dialect is
    enabled, and else the model is asked to send it again."""
    EMULATED = "emulated"
    """The model makes no calls itself, and was asked which tools are needed."""
    UNKNOWN_DROPPED = "unknown_dropped"
    """An emulation decision named tools that do not exist."""
    DECISIONS_DIFFER = "decisions_differ"
    """An emulation answer held several decisions; the last counts, without tools that need approval or more trust."""
    DECISION_UNREADABLE = "decision_unreadable"
    """The emulation decision could not be read; no tool is called."""
    NOT_EMULATED = "not_emulated"
    """Emulation was requested, but the request holds only the provider's own tools."""
    UNDECLARED_NATIVE = "undeclared_native"
    """A model declared with `native_tool_calls=False` made a native call."""
    ABANDONED = "abandoned"
    """A tool's thread cannot be stopped after a time-out or cancellation; its late result is dropped."""
    RESULT_TOO_LONG = "result_too_long"
    """A tool's result exceeds `result_limit`; the model gets the beginning and is told so, the interface gets all."""
    RESYNC = "resync"
    """Events between this reader's position and the next event are no longer kept."""
    DUPLICATE_TOOL = "duplicate_tool"
    """A tool of that name was already registered."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return what a message about an unknown name ends with: the known one that is spelled like it, or nothing."""
    from difflib import get_close_matches  # here, as few names are wrong

    spelled = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), spelled, 1, 0.8)
    return f"; did you mean {spelled[found[0]]!r}?" if found else ""


def check_names(where: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError for a parameter that there is not, with the one that was probably meant."""
    for name in given:
        if name not in known:
            raise TypeError(f"{where} has no parameter {name!r}{did_you_mean(name, known)}")


def check_word(name: str, value: object, allowed: Iterable[object]) -> None:
    """Raise ValueError for an option that is none of the words it may be."""
    if value not in (words := [*allowed]):
        raise ValueError(f"{name} is one of {', '.join(map(repr, words))}, not {value!r}")


class StreamToolsError(Exception):
    """The base class of all exceptions of streamtools."""


class ClosedError(StreamToolsError):
    """A parser, machine or stream was used after it had been closed."""


class RecordingError(StreamToolsError):
    """A file is not a recording, or breaks off; the message names the file and the line."""


class RunNotFound(StreamToolsError, LookupError):
    """The run does not exist for this owner: it never existed, belongs to another owner, or is no longer kept."""


class OwnerUnreachable(StreamToolsError, TimeoutError):
    """The process that drives a run, or Redis, does not answer in time; the request may still have arrived."""


class Draining(ClosedError):
    """The server is shutting down: active runs finish, and new ones are refused."""


class TooManyRuns(StreamToolsError):
    """The maximum number of concurrent runs is reached."""


class EventOrderError(StreamToolsError, ValueError):
    """An event breaks the order of events.

    `place` counts from 1, `event` is None where one is missing at the end, and `rule` is what does not hold.
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
    """No recording holds this request; the message says how the nearest one differs."""


class UnreadableSource(StreamToolsError, TypeError):
    """No adapter can read the object that was passed as a source."""


class DecisionRefused(StreamToolsError, ValueError):
    """A decision does not match a waiting call: none waits, it was already decided, or a different call was shown."""


class CallRefused(StreamToolsError):
    """A ledger refuses to start a call: it is full, or another process has taken over the run."""


class ToolCallFailed(StreamToolsError):
    """A tool called by name gave no result. `name` is the tool's name."""

    code = Code.TOOL_FAILED

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class UnknownTool(ToolCallFailed, LookupError):
    """No tool of this name is registered; the message lists those that are."""

    code = Code.UNKNOWN_TOOL


class ToolInputError(ToolCallFailed, ValueError):
    """The arguments do not fit the tool's schema; the message says where, without repeating the input."""

    code = Code.TOOL_INPUT


class ToolFailed(ToolCallFailed):
    """The tool raised an exception, which is chained."""


class ToolTimeout(ToolCallFailed, TimeoutError):
    """The tool did not finish within its time limit."""

    code = Code.TOOL_TIMEOUT


class ToolOutputError(ToolCallFailed):
    """The tool returned a value that cannot be written as JSON."""

    code = Code.TOOL_OUTPUT
