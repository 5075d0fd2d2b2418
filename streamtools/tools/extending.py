"""The messages that continue a history behind a finished response: what the model wrote, and the results of its calls.

What the model wrote goes back as it came; only arguments that are no JSON object go back as `{}`, since templates that
read them would fail, an entry that is no call goes back as one of the tool `unknown`, and the old `function_call` as
one of `tool_calls`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS
from streamtools.json_values import compact
from streamtools.surrogates import whole
from streamtools.tools.finished import ITEMS, FinishedCall, FinishedResponse, is_call, read_finished, type_of
from streamtools.tools.outcome import ToolOutcome

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
    left = list(outcomes)
    for item in response.written:
        if type_of(item) in ITEMS:
            yield {**item, "call_id": left.pop(0).call.id}
        else:
            yield item
    for outcome, kind in zip(outcomes, _kinds(response.written), strict=True):
        yield {"type": f"{kind}_output", "call_id": outcome.call.id, "output": whole(outcome.text)}


def _kinds(items: Sequence[Mapping[str, Any]]) -> list[str]:
    return [item["type"] for item in items if type_of(item) in ITEMS]


def _write_anthropic(response: FinishedResponse, outcomes: Sequence[ToolOutcome]) -> Iterator[dict[str, Any]]:
    left = list(response.calls)
    blocks = []
    for block in response.written:
        if is_call(block):
            call = left.pop(0).call
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
