"""Reads finished responses for `ToolRegistry.process_tool_calls`, and appends responses and results to a history.

`read_finished` finds the native calls of a response. Like `extract_tool_calls`, it uses the module `response_parts`.
But each call that it returns needs a result, which is sent back together with the call. So it differs in four ways:

- It does not search the text for calls.
- It also returns malformed calls, at their positions.
- It rejects all calls of a response that did not end normally.
- It refuses Gemini's responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streamtools.calls import ARGUMENT_FIELDS, ID_FIELDS, NAME_FIELDS, NATIVE, ToolCall, read_envelope, unwrap
from streamtools.errors import Code, UnreadableSource
from streamtools.json_values import Rejected, compact, well_formed
from streamtools.limits import DEFAULT_LIMITS
from streamtools.response_parts import CALL_ITEMS, entry_type, is_call_block, split_list, split_response, to_plain
from streamtools.tools.results import ToolOutcome

_NORMAL_ENDS = (None, "", "stop", "end_turn", "stop_sequence", "completed", "tool_calls", "tool_use", "function_call")
"""The finish reasons of all providers after which calls run.

After any other finish reason, the arguments of a call may be incomplete. Streams use the same rule.
"""


class FinishedCall(NamedTuple):
    """One call of a response.

    `rejected` is None for a valid call. For any other call it is the error, and the call has no arguments. `entry` is
    the part of the response that holds the call.
    """

    call: ToolCall
    rejected: Rejected | None = None
    entry: Any = None


class FinishedResponse(NamedTuple):
    """A finished response.

    `kind` is its format. `written` is the part that the model wrote: a message, a list of blocks, or a list of items.
    `calls` holds its calls in order.
    """

    kind: str
    written: Any
    calls: list[FinishedCall]


def read_finished(response: object) -> FinishedResponse:
    """Read a finished response. Raises `UnreadableSource` for any other object.

    Errors of the model raise nothing: a malformed call is returned with `rejected` set.
    """
    if isinstance(response, str):
        return FinishedResponse("chat", {"content": response}, [])
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray | memoryview):
        if all(isinstance(entry, ToolCall) for entry in response):
            return FinishedResponse("calls", {}, [FinishedCall(call) for call in response])
        found = split_list(response)
    else:
        value = to_plain(response)
        if not isinstance(value, dict):
            raise UnreadableSource(f"expected a finished response, got {type(response).__name__}")
        found = split_response(value)
        if found.kind == "call":
            found = split_list([value])
        if found.kind == "gemini":
            raise UnreadableSource(
                "Gemini's responses cannot be read here; read them with `extract_tool_calls`, and pass the calls"
            )
        if not found.kind:
            members = ", ".join(map(str, value)) or "nothing"
            raise UnreadableSource(f"expected a finished response, got an object with {members}")
    return FinishedResponse(found.kind, found.written, _read_calls(found.calls, found.ending))


def _read_calls(entries: Iterable[Any], finish_reason: object) -> list[FinishedCall]:
    """Return the calls with unique ids. If the id of the provider is missing or duplicated, an id is generated."""
    calls: list[FinishedCall] = []
    ids: set[str] = set()
    for at, entry in enumerate(entries):
        found = (entry.get(key) for key in ID_FIELDS) if isinstance(entry, dict) else ()
        given = next((str(value) for value in found if isinstance(value, str | int) and value != ""), None)
        given = None if given is None else well_formed(given)
        call_id = given if given is not None and given not in ids else f"{given or 'call'}_{at}"
        while call_id in ids:
            call_id += "_"
        ids.add(call_id)
        name, arguments, rejected = _read_call(entry)
        if not _ended_normally(finish_reason) or (
            entry_type(entry) in CALL_ITEMS and not _ended_normally(entry.get("status"))
        ):
            arguments, rejected = {}, Rejected(Code.TRUNCATED, "the answer was cut off")
        elif at >= DEFAULT_LIMITS.calls:
            why = f"the answer holds more than {DEFAULT_LIMITS.calls} calls"
            arguments, rejected = {}, Rejected(Code.TOO_MANY_CALLS, why)
        call = ToolCall(id=call_id, name=well_formed(name), arguments=arguments, dialect=NATIVE, provider_id=given)
        calls.append(FinishedCall(call, rejected, entry))
    return calls


def _ended_normally(ending: object) -> bool:
    """Return whether this finish reason is in `_NORMAL_ENDS`. A missing reason is normal."""
    return (ending.lower().replace("-", "_") if isinstance(ending, str) else ending) in _NORMAL_ENDS


def _read_call(entry: Any) -> tuple[str, dict[str, Any], Rejected | None]:
    """Return the name, the arguments and the error of a call.

    For a valid call, the error is None. A malformed call has no arguments. Its name is "" if it is malformed too.
    """
    name = ""
    try:
        name = unwrap(entry).name
        return name, read_envelope(entry).arguments, None
    except Rejected as fault:
        return name, {}, fault


def refuse(call: ToolCall, rejected: Rejected) -> ToolOutcome:
    """Return the outcome of a rejected call."""
    text = rejected.message if rejected.code is Code.TRUNCATED else f"not a valid call: {rejected.message}"
    return ToolOutcome(
        call=call,
        result=None,
        text=f"{text}; send the call again",
        error=rejected.code,
        message=rejected.message,
        elapsed=0.0,
    )


# The code below writes the messages that continue a history after a finished response: the message of the model, and
# the results of its calls.
#
# The message of the model is sent back with the ids of `_read_calls`, and with these changes:
#
# - Chat completions and Ollama: null fields and fields of `_OUTPUT_ONLY` are left out. Invalid arguments become `{}`,
#   because chat templates fail on them. An entry of `tool_calls` without a name becomes a call of the tool `unknown`. A
#   `function_call` becomes an entry of `tool_calls`.
# - Anthropic: a call block of another type becomes a `tool_use` block. An input that is not an object becomes `{}`.

_UNKNOWN = "unknown"
_OUTPUT_ONLY = {"annotations", "audio", "function_call", "parsed"}  # fields of a response that are invalid in a request


def extend_messages(messages: Sequence[Any], response: object, outcomes: Sequence[ToolOutcome]) -> list[Any]:
    """Return a new list: `messages`, then the response, then one result for each of its calls.

    The response and the results are in the format of the response. If `response` is a list of `ToolCall`, the format is
    that of chat completions. `messages` and `response` are not modified. Raises ValueError unless each call has exactly
    one outcome, because providers refuse a call without a result.
    """
    finished = read_finished(response)
    by_id = {outcome.call.id: outcome for outcome in outcomes}
    ids = [found.call.id for found in finished.calls]
    if len(by_id) != len(outcomes) or set(ids) != by_id.keys():
        raise ValueError(f"each call must have one outcome: the calls are {ids}, the outcomes {list(by_id)}")
    return [*messages, *_WRITERS[finished.kind](finished, [by_id[call_id] for call_id in ids])]


def _write_chat(response: FinishedResponse, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    written = response.written if isinstance(response.written, dict) else {}
    message = {key: value for key, value in written.items() if value is not None and key not in _OUTPUT_ONLY}
    message = {"role": "assistant", "content": None, **message}
    if outcomes:
        message["tool_calls"] = [_write_call(found, response.kind) for found in response.calls]
    if outcomes or message["content"]:
        yield message
    for outcome in outcomes:
        if response.kind == "ollama":
            yield {"role": "tool", "tool_name": outcome.call.name or _UNKNOWN, "content": well_formed(outcome.text)}
        else:
            yield {"role": "tool", "tool_call_id": outcome.call.id, "content": well_formed(outcome.text)}


def _write_call(found: FinishedCall, kind: str) -> dict[str, Any]:
    call, entry = found.call, found.entry
    # An entry in OpenAI's form: the name and the arguments are in `function` or `custom`.
    if isinstance(entry, Mapping) and entry.keys().isdisjoint((*NAME_FIELDS, *ARGUMENT_FIELDS)):
        function = entry.get("function")
        if isinstance(function, Mapping):
            given = function.get("arguments")
            changed = {} if isinstance(given, Mapping) else {"arguments": "{}" if found.rejected else given or "{}"}
            return {**entry, "id": call.id, "function": {**function, **changed}}
        if isinstance(entry.get("custom"), Mapping):
            return {**entry, "id": call.id}
    arguments = call.arguments if kind == "ollama" else well_formed(compact(call.arguments))
    function = {"name": well_formed(call.name) or _UNKNOWN, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def _write_responses(response: FinishedResponse, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    remaining = iter(outcomes)
    for item in response.written:
        if entry_type(item) in CALL_ITEMS:
            yield {**item, "call_id": next(remaining).call.id}
        else:
            yield item
    kinds = [item["type"] for item in response.written if entry_type(item) in CALL_ITEMS]
    for outcome, kind in zip(outcomes, kinds, strict=True):
        yield {"type": f"{kind}_output", "call_id": outcome.call.id, "output": well_formed(outcome.text)}


def _write_anthropic(response: FinishedResponse, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    remaining = iter(response.calls)
    blocks = []
    for block in response.written:
        if is_call_block(block):
            call = next(remaining).call
            if entry_type(block) == "tool_use":
                is_object = isinstance(block.get("input"), dict)
                block = {**block, "id": call.id, "input": block["input"] if is_object else {}}
            else:
                name = well_formed(call.name) or _UNKNOWN
                block = {"type": "tool_use", "id": call.id, "name": name, "input": call.arguments}
        blocks.append(block)
    if blocks:
        yield {"role": "assistant", "content": blocks}
    if outcomes:
        yield {"role": "user", "content": [_write_result(outcome) for outcome in outcomes]}


def _write_result(outcome: ToolOutcome) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": outcome.call.id, "content": well_formed(outcome.text)}
    return result if outcome.error is None else {**result, "is_error": True}


_WRITERS = {
    "chat": _write_chat,
    "ollama": _write_chat,
    "responses": _write_responses,
    "anthropic": _write_anthropic,
    "calls": _write_chat,
}
