"""Finished answers of models, as SDKs return them: the calls in them, and the messages that continue the history.

Read are OpenAI's chat completions and Responses, Anthropic's messages and Ollama's, as SDK objects or dicts, and lists
of `ToolCall`. What the model wrote goes back as it came; only arguments that are no JSON object go back as `{}`, since
templates that read them would fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from streamtools.calls import NATIVE, Rejected, ToolCall, compact, read_arguments
from streamtools.errors import Code, UnreadableSource
from streamtools.events import whole
from streamtools.tools.outcome import ToolOutcome

_CUT = {"length", "max_tokens", "content_filter", "model_context_window_exceeded", "incomplete", "failed", "refusal"}
"""Endings after which no call is trusted: its arguments may be a beginning that happens to be JSON."""
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
    """Return what a finished answer holds. Raises `UnreadableSource` for what is none."""
    if isinstance(response, Sequence) and all(isinstance(each, ToolCall) for each in response):
        return Answer("calls", None, [Asked(call) for call in response])
    value = _plain(response)
    if not isinstance(value, dict):
        raise UnreadableSource(f"a finished answer was expected, and not {type(response).__name__}")
    if isinstance(value.get("choices"), list):
        choice = value["choices"][0] if value["choices"] else {}
        message = choice.get("message") or {}
        return Answer("chat", message, _number(_chat(message), choice.get("finish_reason")))
    if isinstance(value.get("message"), dict):
        return Answer("ollama", value["message"], _number(_chat(value["message"]), value.get("done_reason")))
    if isinstance(value.get("output"), list):
        return Answer("responses", value["output"], _number(_responses(value["output"]), value.get("status")))
    if isinstance(value.get("content"), list):
        return Answer("anthropic", value["content"], _number(_anthropic(value["content"]), value.get("stop_reason")))
    if "role" in value:
        return Answer("chat", value, _number(_chat(value), None))
    raise UnreadableSource(f"a finished answer was expected, and not an object of {', '.join(value) or 'nothing'}")


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


class _Raw(NamedTuple):
    id: object
    name: object
    arguments: object
    is_text: bool = False  # a custom tool's input is text of any form


def _chat(message: Mapping[str, Any]) -> Iterator[_Raw]:
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        custom = call.get("custom") or {}
        if custom:
            yield _Raw(call.get("id"), custom.get("name"), None, is_text=True)
        else:
            yield _Raw(call.get("id"), function.get("name"), function.get("arguments"))


def _responses(items: Sequence[Mapping[str, Any]]) -> Iterator[_Raw]:
    for item in items:
        if item.get("type") in ("function_call", "custom_tool_call"):
            custom = item["type"] == "custom_tool_call"
            yield _Raw(item.get("call_id"), item.get("name"), item.get("arguments"), is_text=custom)


def _anthropic(blocks: Sequence[Mapping[str, Any]]) -> Iterator[_Raw]:
    for block in blocks:
        if block.get("type") == "tool_use":
            yield _Raw(block.get("id"), block.get("name"), block.get("input"))


def _number(found: Iterator[_Raw], finish_reason: object) -> list[Asked]:
    """Return calls with ids of their own: the provider's, or one by its place where that is missing or stands twice."""
    asked: list[Asked] = []
    ids: set[str] = set()
    for at, raw in enumerate(found):
        given = raw.id if isinstance(raw.id, str) and raw.id else None
        call_id = given if given is not None and given not in ids else f"{given or 'call'}_{at}"
        ids.add(call_id)
        name = raw.name if isinstance(raw.name, str) else ""
        arguments, rejected = _arguments(raw, name, cut=finish_reason in _CUT)
        call = ToolCall(id=call_id, name=name, arguments=arguments, dialect=NATIVE, provider_id=given)
        asked.append(Asked(call, rejected))
    return asked


def _arguments(raw: _Raw, name: str, *, cut: bool) -> tuple[dict[str, Any], Rejected | None]:
    if cut:
        return {}, Rejected(Code.TRUNCATED, "the answer was cut off")
    if not name.strip():
        return {}, Rejected(Code.MISSING_TOOL_NAME, "the call names no tool")
    if raw.is_text:
        return {}, Rejected(Code.INVALID_ARGUMENTS, "the arguments are text, not an object")
    try:
        return read_arguments(raw.arguments).value, None
    except Rejected as error:
        return {}, error


def _write_chat(answer: Answer, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    message = {key: value for key, value in answer.written.items() if value is not None and key not in _OUTPUT_ONLY}
    message = {"role": "assistant", "content": None, **message}
    if outcomes:
        calls = zip(message["tool_calls"], answer.asked, strict=True)
        message["tool_calls"] = [_write_call(call, asked) for call, asked in calls]
    if outcomes or message["content"]:
        yield message
    for outcome in outcomes:
        if answer.kind == "ollama":
            yield {"role": "tool", "tool_name": outcome.call.name, "content": whole(outcome.text)}
        else:
            yield {"role": "tool", "tool_call_id": outcome.call.id, "content": whole(outcome.text)}


def _write_call(call: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    written = {**call, "id": asked.call.id}
    if isinstance(call.get("function"), Mapping):
        given = call["function"].get("arguments")
        is_bad = asked.rejected is not None or not given
        if not isinstance(given, Mapping):
            written["function"] = {**call["function"], "arguments": "{}" if is_bad else given}
    return written


def _write_responses(answer: Answer, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    left = list(outcomes)
    for item in answer.written:
        kind = item.get("type")
        if kind in ("function_call", "custom_tool_call"):
            yield {**item, "call_id": left.pop(0).call.id}
        else:
            yield item
    for outcome, kind in zip(outcomes, _kinds(answer.written), strict=True):
        yield {"type": f"{kind}_output", "call_id": outcome.call.id, "output": whole(outcome.text)}


def _kinds(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["type"] for item in items if item.get("type") in ("function_call", "custom_tool_call")]


def _write_anthropic(answer: Answer, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    left = list(answer.asked)
    blocks = []
    for block in answer.written:
        if block.get("type") == "tool_use":
            asked = left.pop(0)
            is_object = isinstance(block.get("input"), dict)
            block = {**block, "id": asked.call.id, "input": block["input"] if is_object else {}}
        blocks.append(block)
    if blocks:
        yield {"role": "assistant", "content": blocks}
    if outcomes:
        yield {"role": "user", "content": [_write_result(outcome) for outcome in outcomes]}


def _write_result(outcome: ToolOutcome) -> dict[str, Any]:
    result = {"type": "tool_result", "tool_use_id": outcome.call.id, "content": whole(outcome.text)}
    return result if outcome.error is None else {**result, "is_error": True}


def _write_calls(answer: Answer, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    from_calls = [
        {"id": call.id, "type": "function", "function": {"name": whole(call.name), "arguments": _json(call.arguments)}}
        for call, _ in answer.asked
    ]
    return _write_chat(answer._replace(kind="chat", written={"tool_calls": from_calls}), outcomes)


def _json(arguments: dict[str, Any]) -> str:
    return whole(compact(arguments))


_WRITERS = {
    "chat": _write_chat,
    "ollama": _write_chat,
    "responses": _write_responses,
    "anthropic": _write_anthropic,
    "calls": _write_calls,
}
