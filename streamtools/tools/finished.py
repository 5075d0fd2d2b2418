"""Finished responses of models, as SDKs return them: what the model wrote, and the calls in it.

Read are OpenAI's chat completions and Responses, Anthropic's messages and Ollama's, as SDK objects or dicts, their
messages, lists of blocks, items or calls, and texts. Which entries are calls, and how many count, is decided as by
`extract_tool_calls`. There are differences, since here each call gets a result and goes back with it: only native
calls are read, and none in the text; each has an outcome in its place, also one that is no call; none runs of a
response that did not end well; and Gemini's responses, null and objects that hold no response are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from streamtools.calls import ID_FIELDS, NATIVE, ToolCall, read_envelope, unwrap
from streamtools.errors import Code, UnreadableSource
from streamtools.json_values import Rejected
from streamtools.limits import DEFAULT_LIMITS
from streamtools.surrogates import whole

_WELL = (None, "", "stop", "end_turn", "stop_sequence", "completed", "tool_calls", "tool_use", "function_call")
"""Endings after which calls run, in the words of all providers, as they run in a stream. After any other, also one that
nobody knows, no call is trusted: its arguments may be a beginning that happens to be JSON."""
ITEMS = ("function_call", "custom_tool_call")
"""The `type` of a call among items of Responses."""
_BLOCKS = ("tool_use", "function_call", "function")  # and in a list of blocks; there, one without a type is a call too


class FinishedCall(NamedTuple):
    """One call of a response; `rejected` tells why it is none, and it has no arguments then."""

    call: ToolCall
    rejected: Rejected | None = None


class FinishedResponse(NamedTuple):
    """A finished response: whose it is, what the model wrote (messages, blocks or items), and its calls in order."""

    kind: Literal["chat", "ollama", "responses", "anthropic", "calls"]
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


def type_of(entry: object, unsaid: object = None) -> object:
    """Return what an entry says that it is; `unsaid` if it is an object that does not say."""
    return entry.get("type", unsaid) if isinstance(entry, dict) else None


def _listed(message: Mapping[str, Any]) -> list[Any]:
    """Return the entries of a message that stand where its calls do."""
    calls, old = message.get("tool_calls"), message.get("function_call")
    found = _entries(calls if isinstance(calls, list) else [calls] if calls else [])
    if not old:
        return found
    old = _entry(old)
    return [*found, {"type": "function", "function": old} if isinstance(old, dict) else old]


def _read_list(entries: list[Any]) -> FinishedResponse:
    """Return what a list holds: items of Responses, blocks of Anthropic's, or calls."""
    if any(type_of(each) in (*ITEMS, "reasoning", "message") for each in entries):
        return _read_items(entries, None)
    if any(type_of(each) in ("tool_use", "text", "thinking") for each in entries):
        return _read_blocks(entries, None)
    return FinishedResponse("calls", None, _number(filter(is_call, entries), None))


def _read_chat(kind: Literal["chat", "ollama"], message: dict[str, Any], finish_reason: object) -> FinishedResponse:
    listed = _listed(message)
    return FinishedResponse(kind, {**message, "tool_calls": listed or None}, _number(listed, finish_reason))


def _read_items(items: list[Any], status: object) -> FinishedResponse:
    known = [item for item in items if isinstance(item, dict)]
    return FinishedResponse("responses", known, _number([item for item in known if type_of(item) in ITEMS], status))


def _read_blocks(blocks: list[Any], stop_reason: object) -> FinishedResponse:
    return FinishedResponse("anthropic", blocks, _number([block for block in blocks if is_call(block)], stop_reason))


def is_call(block: object) -> bool:
    """Return whether what stands in a list of blocks stands there as a call."""
    return not isinstance(block, dict) or type_of(block, "function") in _BLOCKS


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
            told = f"the answer holds more than {DEFAULT_LIMITS.calls} calls"
            arguments, rejected = {}, Rejected(Code.TOO_MANY_CALLS, told)
        call = ToolCall(id=call_id, name=whole(name), arguments=arguments, dialect=NATIVE, provider_id=given)
        calls.append(FinishedCall(call, rejected))
    return calls


def _is_well(ending: object) -> bool:
    """Return whether an answer that ended so has ended of its own; not to tell why is to have stopped."""
    return (ending.lower().replace("-", "_") if isinstance(ending, str) else ending) in _WELL


def _read_call(entry: Any) -> tuple[str, dict[str, Any], Rejected | None]:
    """Return the name and the arguments of a call, as far as it has them, and what is wrong with it."""
    custom = entry.get("custom") if isinstance(entry, dict) else None
    name = ""
    try:
        name = unwrap(custom if isinstance(custom, dict) else entry).name
        if isinstance(custom, dict) or type_of(entry) == "custom_tool_call":  # whose input is text of any form
            raise Rejected(Code.INVALID_ARGUMENTS, "the arguments are text, not an object")
        return name, read_envelope(entry).arguments, None
    except Rejected as fault:
        return name, {}, fault
