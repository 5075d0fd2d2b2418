"""Finished responses of models, as SDKs return them: what the model wrote, and the calls in it.

Read are OpenAI's chat completions and Responses, Anthropic's messages and Ollama's, as SDK objects or dicts, their
messages, lists of blocks, items or calls, and texts. Which entries are calls, and how many count, is decided as by
`extract_tool_calls`. There are differences, since here each call gets a result and goes back with it: only native
calls are read, and none in the text; each has an outcome in its place, also one that is no call; none runs of a
response that did not end well; and Gemini's responses, null and objects that hold no response are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streamtools.calls import (
    ARGUMENT_FIELDS,
    ID_FIELDS,
    ITEMS,
    NAME_FIELDS,
    NATIVE,
    ToolCall,
    is_call,
    old_call,
    plain,
    read_envelope,
    take_apart,
    take_list_apart,
    type_of,
    unwrap,
)
from streamtools.errors import Code, UnreadableSource
from streamtools.json_values import Rejected, compact, whole
from streamtools.limits import DEFAULT_LIMITS
from streamtools.tools.results import ToolOutcome

_WELL = (None, "", "stop", "end_turn", "stop_sequence", "completed", "tool_calls", "tool_use", "function_call")
"""Endings after which calls run, in the words of all providers, as they run in a stream. After any other, also one that
nobody knows, no call is trusted: its arguments may be a beginning that happens to be JSON."""


class FinishedCall(NamedTuple):
    """One call of a response; `rejected` tells why it is none, and it has no arguments then."""

    call: ToolCall
    rejected: Rejected | None = None


class FinishedResponse(NamedTuple):
    """A finished response: its shape, what the model wrote (a message, blocks or items), and its calls in order."""

    kind: str
    written: Any
    calls: list[FinishedCall]


def read_finished(response: object) -> FinishedResponse:
    """Return what a finished response holds. Raises `UnreadableSource` for what is none.

    Nothing that a model writes makes it raise: an entry that is no call is `rejected` as `unrecognised_tool_call`.
    """
    if isinstance(response, str):
        return FinishedResponse("chat", {"content": response}, [])
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray | memoryview):
        if all(isinstance(each, ToolCall) for each in response):
            return FinishedResponse("calls", None, [FinishedCall(call) for call in response])
        found = take_list_apart(response)
    else:
        value = plain(response)
        if not isinstance(value, dict):
            raise UnreadableSource(f"a finished answer was expected, and not {type(response).__name__}")
        found = take_apart(value)
        if found.kind == "call":
            found = take_list_apart([value])
        if found.kind == "gemini":
            raise UnreadableSource(
                "a finished answer was expected that goes back as it came, and Gemini's does not: "
                "`extract_tool_calls` reads its calls, and a list of these is an answer"
            )
        if not found.kind:
            held = ", ".join(map(str, value)) or "nothing"
            raise UnreadableSource(f"a finished answer was expected, and not an object of {held}")
    kind, written, entries, ending = found
    if kind in ("chat", "ollama"):
        if entries and isinstance(entries[-1], dict) and old_call(written):  # goes back in the newer form
            entries[-1] = {"type": "function", "function": entries[-1]}
        written = {**written, "tool_calls": entries or None}
    return FinishedResponse(kind, written, _number(entries, ending))


def _number(entries: Iterable[Any], finish_reason: object) -> list[FinishedCall]:
    """Return calls with ids of their own: the provider's, or one by its place where that is missing or stands twice."""
    calls: list[FinishedCall] = []
    ids: set[str] = set()
    for at, entry in enumerate(entries):
        found = (entry.get(key) for key in ID_FIELDS) if isinstance(entry, dict) else ()
        given = next((str(each) for each in found if isinstance(each, str | int) and each != ""), None)
        given = None if given is None else whole(given)
        call_id = given if given is not None and given not in ids else f"{given or 'call'}_{at}"
        while call_id in ids:
            call_id += "_"
        ids.add(call_id)
        name, arguments, rejected = _read_call(entry)
        if not _is_well(finish_reason) or (type_of(entry) in ITEMS and not _is_well(entry.get("status"))):
            arguments, rejected = {}, Rejected(Code.TRUNCATED, "the answer was cut off")
        elif at >= DEFAULT_LIMITS.calls:
            why = f"the answer holds more than {DEFAULT_LIMITS.calls} calls"
            arguments, rejected = {}, Rejected(Code.TOO_MANY_CALLS, why)
        call = ToolCall(id=call_id, name=whole(name), arguments=arguments, dialect=NATIVE, provider_id=given)
        calls.append(FinishedCall(call, rejected))
    return calls


def _is_well(ending: object) -> bool:
    """Return whether an answer that ended so has ended of its own; not to tell why is to have stopped."""
    return (ending.lower().replace("-", "_") if isinstance(ending, str) else ending) in _WELL


def _read_call(entry: Any) -> tuple[str, dict[str, Any], Rejected | None]:
    """Return the name and the arguments of a call, as far as it has them, and what is wrong with it."""
    name = ""
    try:
        name = unwrap(entry).name
        return name, read_envelope(entry).arguments, None
    except Rejected as fault:
        return name, {}, fault


def refuse(call: ToolCall, rejected: Rejected) -> ToolOutcome:
    """Return the outcome of what is no call."""
    text = rejected.message if rejected.code is Code.TRUNCATED else f"not a valid call: {rejected.message}"
    return ToolOutcome(
        call=call,
        result=None,
        text=f"{text}; send the call again",
        error=rejected.code,
        message=rejected.message,
        elapsed=0.0,
    )


# The messages that continue a history behind a finished response: what the model wrote, and the results of its calls.
#
# What the model wrote goes back as it came; only arguments that are no JSON object go back as `{}`, since templates
# that read them would fail, an entry that is no call goes back as one of the tool `unknown`, and the old
# `function_call` as one of `tool_calls`.

_UNKNOWN = "unknown"
_OUTPUT_ONLY = {"annotations", "audio", "function_call", "parsed"}  # what chat completions tell and do not take back


def extend_messages(messages: Sequence[Any], response: object, outcomes: Sequence[ToolOutcome]) -> list[Any]:
    """Return `messages`, then the model's answer, then one result for each of its calls, in the provider's own form.

    Nothing is changed in place. Raises ValueError unless each call has exactly one outcome: providers refuse a history
    in which a call has none. A list of `ToolCall` as `response` is written as a chat completion's message.
    """
    finished = read_finished(response)
    by_id = {outcome.call.id: outcome for outcome in outcomes}
    ids = [each.call.id for each in finished.calls]
    if len(by_id) != len(outcomes) or set(ids) != by_id.keys():
        raise ValueError(f"each call has one outcome: the calls are {ids}, and the outcomes {list(by_id)}")
    return [*messages, *_WRITERS[finished.kind](finished, [by_id[each] for each in ids])]


def _write_chat(response: FinishedResponse, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    message = {key: value for key, value in response.written.items() if value is not None and key not in _OUTPUT_ONLY}
    message = {"role": "assistant", "content": None, **message}
    if outcomes:
        calls = zip(message["tool_calls"], response.calls, strict=True)
        message["tool_calls"] = [_write_call(call, finished, response.kind) for call, finished in calls]
    if outcomes or message["content"]:
        yield message
    for outcome in outcomes:
        if response.kind == "ollama":
            yield {"role": "tool", "tool_name": outcome.call.name or _UNKNOWN, "content": whole(outcome.text)}
        else:
            yield {"role": "tool", "tool_call_id": outcome.call.id, "content": whole(outcome.text)}


def _write_call(call: Any, finished: FinishedCall, kind: str) -> dict[str, Any]:
    if not isinstance(call, Mapping) or not call.keys().isdisjoint((*NAME_FIELDS, *ARGUMENT_FIELDS)):
        return _write_anew(finished, kind)
    written = {**call, "id": finished.call.id}
    function = call.get("function")
    if isinstance(function, Mapping):
        given = function.get("arguments")
        is_bad = finished.rejected is not None or not given
        if not isinstance(given, Mapping):
            written["function"] = {**function, "arguments": "{}" if is_bad else given}
    elif not isinstance(call.get("custom"), Mapping):
        return _write_anew(finished, kind)
    return written


def _write_anew(finished: FinishedCall, kind: str = "chat") -> dict[str, Any]:
    """Return a call in the form of chat completions, whatever its own was."""
    call = finished.call
    arguments = call.arguments if kind == "ollama" else whole(compact(call.arguments))
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": whole(call.name) or _UNKNOWN, "arguments": arguments},
    }


def _write_responses(response: FinishedResponse, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    left = iter(outcomes)
    for item in response.written:
        if type_of(item) in ITEMS:
            yield {**item, "call_id": next(left).call.id}
        else:
            yield item
    kinds = [item["type"] for item in response.written if type_of(item) in ITEMS]
    for outcome, kind in zip(outcomes, kinds, strict=True):
        yield {"type": f"{kind}_output", "call_id": outcome.call.id, "output": whole(outcome.text)}


def _write_anthropic(response: FinishedResponse, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    left = iter(response.calls)
    blocks = []
    for block in response.written:
        if is_call(block):
            call = next(left).call
            if type_of(block) == "tool_use":
                is_object = isinstance(block.get("input"), dict)
                block = {**block, "id": call.id, "input": block["input"] if is_object else {}}
            else:
                name = whole(call.name) or _UNKNOWN
                block = {"type": "tool_use", "id": call.id, "name": name, "input": call.arguments}
        blocks.append(block)
    if blocks:
        yield {"role": "assistant", "content": blocks}
    if outcomes:
        yield {"role": "user", "content": [_write_result(outcome) for outcome in outcomes]}


def _write_result(outcome: ToolOutcome) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": outcome.call.id, "content": whole(outcome.text)}
    return result if outcome.error is None else {**result, "is_error": True}


def _write_calls(response: FinishedResponse, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    from_calls = [_write_anew(each) for each in response.calls]
    return _write_chat(response._replace(kind="chat", written={"tool_calls": from_calls}), outcomes)


_WRITERS = {
    "chat": _write_chat,
    "ollama": _write_chat,
    "responses": _write_responses,
    "anthropic": _write_anthropic,
    "calls": _write_calls,
}
