"""Finished answers of models, as SDKs return them: the calls in them, and the messages that continue the history.

Read are OpenAI's chat completions and Responses, Anthropic's messages and Ollama's, as SDK objects or dicts, their
messages, lists of blocks, items or calls, and texts. Which entries are calls, and how many count, is decided as by
`extract_tool_calls`. There are differences, since here each call gets a result and goes back with it: only native
calls are read, and none in the text; each has an outcome in its place, also one that is no call; none runs of an answer
that did not end well; and Gemini's responses, null and objects that hold no answer are refused. What the model wrote
goes back as it came; only arguments that are no JSON object go back as `{}`, since templates that read them would fail,
an entry that is no call goes back as one of the tool `unknown`, and the old `function_call` as one of `tool_calls`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from streamtools.calls import (
    ARGUMENT_FIELDS,
    DEFAULT_LIMITS,
    NAME_FIELDS,
    NATIVE,
    Rejected,
    ToolCall,
    compact,
    read_envelope,
    unwrap,
)
from streamtools.errors import Code, UnreadableSource
from streamtools.events import whole
from streamtools.tools.outcome import ToolOutcome

_WELL = (None, "", "stop", "end_turn", "stop_sequence", "completed", "tool_calls", "tool_use", "function_call")
"""Endings after which calls run, in the words of all providers, as they run in a stream. After any other, also one that
nobody knows, no call is trusted: its arguments may be a beginning that happens to be JSON."""
_IDS = ("call_id", "tool_call_id", "toolCallId", "id")  # in Responses, an item has an id of its own beside the call's
_ITEMS = ("function_call", "custom_tool_call")
_BLOCKS = ("tool_use", "function_call", "function")
"""The `type` of a call among items of Responses, and in a list of blocks; there, one without a type is a call too."""
_UNKNOWN = "unknown"
_OUTPUT_ONLY = {"annotations", "audio", "function_call", "parsed"}  # what chat completions tell and do not take back


class Asked(NamedTuple):
    """One call of an answer; `rejected` tells why it is none, and it has no arguments then."""

    call: ToolCall
    rejected: Rejected | None = None


class Answer(NamedTuple):
    """A finished answer: whose it is, what the model wrote (messages, blocks or items), and its calls in order."""

    kind: Literal["chat", "ollama", "responses", "anthropic", "calls"]
    written: Any
    asked: list[Asked]


def read_answer(response: object) -> Answer:
    """Return what a finished answer holds. Raises `UnreadableSource` for what is none.

    Nothing that a model writes makes it raise: an entry that is no call is `rejected` as `unrecognised_tool_call`.
    """
    if isinstance(response, str):
        return Answer("chat", {"content": response}, [])
    if isinstance(response, Sequence) and not isinstance(response, bytes | bytearray | memoryview):
        if all(isinstance(each, ToolCall) for each in response):
            return Answer("calls", None, [Asked(call) for call in response])
        return _read_list(_entries(response))
    value = _plain(response)
    if not isinstance(value, dict):
        raise UnreadableSource(f"a finished answer was expected, and not {type(response).__name__}")
    if "candidates" in value or "promptFeedback" in value:
        raise UnreadableSource(
            "a finished answer was expected that goes back as it came, and Gemini's does not: "
            "`extract_tool_calls` reads its calls, and a list of these is an answer"
        )
    if isinstance(value.get("choices"), list):
        choice = _dict(next(iter(value["choices"]), None))
        return _read_chat("chat", _dict(choice.get("message")), choice.get("finish_reason"))
    if isinstance(value.get("message"), dict):
        return _read_chat("ollama", value["message"], value.get("done_reason") or value.get("finish_reason"))
    if isinstance(value.get("output"), list):
        return _read_items(_entries(value["output"]), value.get("status"))
    if isinstance(value.get("content"), list) and not _listed(value):
        return _read_blocks(_entries(value["content"]), value.get("stop_reason"))
    if value.get("type") in _BLOCKS or "function" in value or ("name" in value and "role" not in value):
        return _read_list([value])
    if "role" in value or _listed(value):
        return _read_chat("chat", value, None)
    held = ", ".join(map(str, value)) or "nothing"
    raise UnreadableSource(f"a finished answer was expected, and not an object of {held}")


def extend_messages(messages: Sequence[Any], response: object, outcomes: Sequence[ToolOutcome]) -> list[Any]:
    """Return `messages`, then the model's answer, then one result for each of its calls, in the provider's own form.

    Nothing is changed in place. Raises ValueError unless each call has exactly one outcome: providers refuse a history
    in which a call has none. A list of `ToolCall` as `response` is written as a chat completion's message.
    """
    answer = read_answer(response)
    by_id = {outcome.call.id: outcome for outcome in outcomes}
    ids = [asked.call.id for asked in answer.asked]
    if len(by_id) != len(outcomes) or set(ids) != by_id.keys():
        raise ValueError(f"each call has one outcome: the calls are {ids}, and the outcomes {list(by_id)}")
    return [*messages, *_WRITERS[answer.kind](answer, [by_id[each] for each in ids])]


def _plain(response: object) -> Any:
    dump = getattr(response, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude_none=True, warnings=False)
    return dict(response) if isinstance(response, Mapping) else None


def _entry(value: object) -> Any:
    """Return the dict that `value` is or was made of, or else itself."""
    if isinstance(value, ToolCall):
        return msgspec.to_builtins(value)
    return value if (plain := _plain(value)) is None else plain


def _entries(values: Iterable[object]) -> list[Any]:
    return [_entry(each) for each in values]


def _dict(value: object) -> dict[str, Any]:
    plain = _entry(value)
    return plain if isinstance(plain, dict) else {}


def _type(entry: object, unsaid: object = None) -> object:
    return entry.get("type", unsaid) if isinstance(entry, dict) else None


def _listed(message: Mapping[str, Any]) -> list[Any]:
    """Return the entries of a message that stand where its calls do."""
    calls, old = message.get("tool_calls"), message.get("function_call")
    found = _entries(calls if isinstance(calls, list) else [calls] if calls else [])
    if not old:
        return found
    old = _entry(old)
    return [*found, {"type": "function", "function": old} if isinstance(old, dict) else old]


def _read_list(entries: list[Any]) -> Answer:
    """Return what a list holds: items of Responses, blocks of Anthropic's, or calls."""
    if any(_type(each) in (*_ITEMS, "reasoning", "message") for each in entries):
        return _read_items(entries, None)
    if any(_type(each) in ("tool_use", "text", "thinking") for each in entries):
        return _read_blocks(entries, None)
    return Answer("calls", None, _number(filter(_is_call, entries), None))


def _read_chat(kind: Literal["chat", "ollama"], message: dict[str, Any], finish_reason: object) -> Answer:
    listed = _listed(message)
    return Answer(kind, {**message, "tool_calls": listed or None}, _number(listed, finish_reason))


def _read_items(items: list[Any], status: object) -> Answer:
    known = [item for item in items if isinstance(item, dict)]
    return Answer("responses", known, _number([item for item in known if _type(item) in _ITEMS], status))


def _read_blocks(blocks: list[Any], stop_reason: object) -> Answer:
    return Answer("anthropic", blocks, _number([block for block in blocks if _is_call(block)], stop_reason))


def _is_call(block: object) -> bool:
    """Return whether what stands in a list of blocks stands there as a call."""
    return not isinstance(block, dict) or _type(block, "function") in _BLOCKS


def _number(entries: Iterable[Any], finish_reason: object) -> list[Asked]:
    """Return calls with ids of their own: the provider's, or one by its place where that is missing or stands twice."""
    asked: list[Asked] = []
    ids: set[str] = set()
    for at, entry in enumerate(entries):
        found = (entry.get(key) for key in _IDS) if isinstance(entry, dict) else ()
        given = next((str(each) for each in found if isinstance(each, str | int) and each != ""), None)
        given = None if given is None else whole(given)
        call_id = given if given is not None and given not in ids else f"{given or 'call'}_{at}"
        while call_id in ids:
            call_id += "_"
        ids.add(call_id)
        name, arguments, rejected = _read_call(entry)
        if not _is_well(finish_reason) or (_type(entry) in _ITEMS and not _is_well(entry.get("status"))):
            arguments, rejected = {}, Rejected(Code.TRUNCATED, "the answer was cut off")
        elif at >= DEFAULT_LIMITS.calls:
            told = f"the answer holds more than {DEFAULT_LIMITS.calls} calls"
            arguments, rejected = {}, Rejected(Code.TOO_MANY_CALLS, told)
        call = ToolCall(id=call_id, name=whole(name), arguments=arguments, dialect=NATIVE, provider_id=given)
        asked.append(Asked(call, rejected))
    return asked


def _is_well(ending: object) -> bool:
    """Return whether an answer that ended so has ended of its own; not to tell why is to have stopped."""
    return (ending.lower().replace("-", "_") if isinstance(ending, str) else ending) in _WELL


def _read_call(entry: Any) -> tuple[str, dict[str, Any], Rejected | None]:
    """Return the name and the arguments of a call, as far as it has them, and what is wrong with it."""
    custom = entry.get("custom") if isinstance(entry, dict) else None
    name = ""
    try:
        name = unwrap(custom if isinstance(custom, dict) else entry).name
        if isinstance(custom, dict) or _type(entry) == "custom_tool_call":  # whose input is text of any form
            raise Rejected(Code.INVALID_ARGUMENTS, "the arguments are text, not an object")
        return name, read_envelope(entry).arguments, None
    except Rejected as fault:
        return name, {}, fault


def _write_chat(answer: Answer, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    message = {key: value for key, value in answer.written.items() if value is not None and key not in _OUTPUT_ONLY}
    message = {"role": "assistant", "content": None, **message}
    if outcomes:
        calls = zip(message["tool_calls"], answer.asked, strict=True)
        message["tool_calls"] = [_write_call(call, asked, answer.kind) for call, asked in calls]
    if outcomes or message["content"]:
        yield message
    for outcome in outcomes:
        if answer.kind == "ollama":
            yield {"role": "tool", "tool_name": outcome.call.name or _UNKNOWN, "content": whole(outcome.text)}
        else:
            yield {"role": "tool", "tool_call_id": outcome.call.id, "content": whole(outcome.text)}


def _write_call(call: Any, asked: Asked, kind: str) -> dict[str, Any]:
    if not isinstance(call, Mapping) or not call.keys().isdisjoint((*NAME_FIELDS, *ARGUMENT_FIELDS)):
        return _write_anew(asked, kind)
    written = {**call, "id": asked.call.id}
    function = call.get("function")
    if isinstance(function, Mapping):
        given = function.get("arguments")
        is_bad = asked.rejected is not None or not given
        if not isinstance(given, Mapping):
            written["function"] = {**function, "arguments": "{}" if is_bad else given}
    elif not isinstance(call.get("custom"), Mapping):
        return _write_anew(asked, kind)
    return written


def _write_anew(asked: Asked, kind: str = "chat") -> dict[str, Any]:
    """Return a call in the form of chat completions, whatever its own was."""
    call = asked.call
    arguments = call.arguments if kind == "ollama" else whole(compact(call.arguments))
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": whole(call.name) or _UNKNOWN, "arguments": arguments},
    }


def _write_responses(answer: Answer, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    left = list(outcomes)
    for item in answer.written:
        if _type(item) in _ITEMS:
            yield {**item, "call_id": left.pop(0).call.id}
        else:
            yield item
    for outcome, kind in zip(outcomes, _kinds(answer.written), strict=True):
        yield {"type": f"{kind}_output", "call_id": outcome.call.id, "output": whole(outcome.text)}


def _kinds(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["type"] for item in items if _type(item) in _ITEMS]


def _write_anthropic(answer: Answer, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    left = list(answer.asked)
    blocks = []
    for block in answer.written:
        if _is_call(block):
            call = left.pop(0).call
            if _type(block) == "tool_use":
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


def _write_calls(answer: Answer, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    from_calls = [_write_anew(asked) for asked in answer.asked]
    return _write_chat(answer._replace(kind="chat", written={"tool_calls": from_calls}), outcomes)


_WRITERS = {
    "chat": _write_chat,
    "ollama": _write_chat,
    "responses": _write_responses,
    "anthropic": _write_anthropic,
    "calls": _write_calls,
}
