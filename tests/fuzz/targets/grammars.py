"""The parts of each provider's streams, for `growth`: beginnings, continuations, ends, and odd or unreadable frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.fuzz.growth import LONG, MANY, NEXT, NUMBER


class Stream(NamedTuple):
    """The frames of one format: a dict is JSON, a text is unchanged."""

    frames: Sequence[Any]
    first: Sequence[Any] = ()
    last: Sequence[Any] = ()


_BAD = ["data: {x\n\n", f"data: {NUMBER}\n\n", "event: odd\ndata: {}\n\n", ": nothing\n\n"]


def _delta(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def _calls(**entry: Any) -> dict[str, Any]:
    return _delta(tool_calls=[entry])


def _block(kind: str, **rest: Any) -> dict[str, Any]:
    return {"type": f"content_block_{kind}", **rest}


def _content(part: dict[str, Any]) -> dict[str, Any]:
    return {"candidates": [{"content": {"parts": [part]}}]}


def _partial(path: str, **rest: Any) -> dict[str, Any]:
    values = [{"jsonPath": path, "stringValue": "x", "willContinue": True}]
    return _content({"functionCall": {"partialArgs": values, "willContinue": True, **rest}})


def _step(kind: str, **rest: Any) -> dict[str, Any]:
    return {"event_type": f"step.{kind}", **rest}


def _event(kind: str, **rest: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **rest}


def _converse(kind: str, index: Any, **rest: Any) -> dict[str, Any]:
    return {f"contentBlock{kind}": {"contentBlockIndex": index, **rest}}


def _told(kind: str, index: Any = None, **message: Any) -> dict[str, Any]:
    return {"type": kind, "index": index, "delta": {"message": message}}


def _of_chain(data: dict[str, Any], name: str = "provider-event") -> dict[str, Any]:
    return {"type": name, "data": data}


_ITEM = {"type": "function_call", "id": f"i{NUMBER}", "call_id": f"c{NUMBER}", "name": "f", "arguments": "{}"}
_SAID = {"type": "message", "id": f"m{NUMBER}", "content": [{"type": "output_text", "text": "a"}]}
_BEGUN = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": "'}}
_LISTED = {"id": f"c{NUMBER}", "name": "f", "arguments": {"a": NUMBER}}

STREAMS: dict[str, Stream] = {
    "openai": Stream(
        [
            _calls(index=NUMBER, id=f"c{NUMBER}", type="function", function={"name": "f", "arguments": '{"a": 1'}),
            _delta(tool_calls=[_BEGUN, {"index": 0, "function": {"arguments": LONG}}]),
            _calls(index=NUMBER, function={"arguments": '{"a": 1'}),
            _calls(index=NUMBER, function={"arguments": "{}"}),
            _calls(index=0, function={"arguments": f'{{"a": "{LONG}"}}'}),
            _calls(index=0, id=f"c{NUMBER}", function={"name": f"f{NUMBER}", "arguments": "{}"}),
            _calls(id=f"c{NUMBER}", function={"name": "f"}),
            _delta(tool_calls=[5]),
            _delta(tool_calls=[MANY, 5]),
            _delta(tool_calls=[MANY, {"id": f"c{NUMBER}", "function": {"name": "f", "arguments": "{}"}}]),
            _delta(function_call={"name": "f", "arguments": "x"}),
            _delta(content="a", reasoning="b"),
            {"choices": [], "usage": {"prompt_tokens": NUMBER}},
            *_BAD,
        ],
        last=[{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}, "data: [DONE]\n\n"],
    ),
    "anthropic": Stream(
        [
            _block("start", index=NUMBER, content_block={"type": "tool_use", "id": f"c{NUMBER}", "name": "f"}),
            _block("start", index=NUMBER, content_block={"type": "thinking", "thinking": "a"}),
            _block("start", index=NUMBER, content_block={"type": "server_tool_use", "id": f"s{NUMBER}", "name": "f"}),
            _block("delta", index=NUMBER, delta={"type": "input_json_delta", "partial_json": '{"a": 1'}),
            _block("delta", index=0, delta={"type": "input_json_delta", "partial_json": f'{{"a": "{LONG}"}}'}),
            _block("delta", index=NUMBER, delta={"type": "odd", "partial_json": 5}),
            _block("delta", delta={"type": "odd", "partial_json": 5}),
            _block("delta", index=NUMBER, delta=5),
            _block("delta", index=NUMBER, delta={"type": "text_delta", "text": "a"}),
            _block("delta", index=NUMBER, delta={"type": "signature_delta", "signature": "s"}),
            _block("stop", index=NUMBER),
            {"type": "message_delta", "usage": {"output_tokens": NUMBER}},
            *_BAD,
        ],
        first=[{"type": "message_start", "message": {"id": "m"}}],
        last=[{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}],
    ),
    "gemini": Stream(
        [
            _content({"text": "a"}),
            _content({"functionCall": {"name": "f", "args": {"a": NUMBER}}, "thoughtSignature": "s"}),
            _content({"functionCall": {"name": "f", "willContinue": True}}),
            *(_partial(path) for path in (f"$.a{NUMBER}", "$.a", f"$.b[{NUMBER}]", "$.c.d")),
            _content({"executableCode": {"id": "x"}}),
            _step("start", index=NUMBER, step={"type": "function_call", "id": f"c{NUMBER}", "name": "f"}),
            _step("delta", index=NUMBER, delta={"type": "arguments_delta", "arguments": '{"a": 1'}),
            _step("delta", index=0, delta={"type": "arguments_delta", "arguments": f'{{"a": "{LONG}"}}'}),
            _step("delta", index=NUMBER, delta={"type": "odd", "arguments": 5}),
            _step("delta", delta={"arguments": 5}),
            _step("start", index=NUMBER, step={"type": "google_search_result", "call_id": "c", "result": [1]}),
            _step("delta", index=NUMBER, delta={"type": "google_search_result", "result": [NUMBER]}),
            _step("delta", index=0, delta={"type": "google_search_result", "result": LONG}),
            _step("delta", index=NUMBER, delta={"type": "google_search_result", "arguments": {f"a{NUMBER}": 1}}),
            _step("stop", index=NUMBER),
            *_BAD,
        ],
        last=[{"candidates": [{"finishReason": "STOP"}]}],
    ),
    "responses": Stream(
        [
            _event("output_item.added", output_index=NUMBER, item=_ITEM | {"arguments": ""}),
            _event("output_item.added", item={"type": "function_call", "name": "f"}),
            _event("function_call_arguments.delta", item_id=f"i{NUMBER}", output_index=NUMBER, delta='{"a": 1'),
            _event("function_call_arguments.delta", output_index=0, delta=f'{{"a": "{LONG}"}}'),
            _event("function_call_arguments.delta", output_index=NUMBER, delta=5),
            _event("function_call_arguments.done", output_index=NUMBER, arguments="{}"),
            _event("output_item.done", output_index=NUMBER, item=_ITEM),
            _event("output_text.delta", item_id="m", output_index=99_999, delta=LONG),
            _event("output_text.done", item_id="m", output_index=99_999, text="a"),
            _event("output_text.done", item_id="m", output_index=99_999),
            _event("output_item.done", item=_SAID),
            _event("reasoning_summary_text.delta", item_id=f"r{NUMBER}", summary_index=NUMBER, delta="a"),
            _event("completed", response={"status": "completed", "output": [MANY, _ITEM]}),
            *_BAD,
        ],
        last=[_event("completed", response={"status": "completed", "output": [MANY, _SAID]})],
    ),
    "ollama": Stream(
        [
            {"message": {"role": "assistant", "content": "a", "thinking": "b"}},
            {"message": {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": NUMBER}}}]}},
            {"message": {"tool_calls": [MANY, {"function": {"name": "f", "arguments": {"a": NUMBER}}}]}},
            {"message": {"tool_calls": [MANY, 5]}},
            {"error": 5}, "{x\n", "5\n",
        ],
        last=[{"done": True, "done_reason": "stop", "message": {"content": ""}}],
    ),
    "ai_sdk": Stream(
        [
            {"type": "tool-input-start", "toolCallId": f"c{NUMBER}", "toolName": "f"},
            {"type": "tool-input-available", "toolCallId": f"c{NUMBER}", "toolName": "f", "input": {"a": NUMBER}},
            {"type": "tool-input-available", "toolName": "f", "input": {"a": LONG}},
            {"type": "tool-output-available", "toolCallId": f"c{NUMBER}", "output": "x"},
            {"type": "tool-approval-request", "toolCallId": f"c{NUMBER}", "approvalId": "a"},
            {"type": "text-delta", "id": "t", "delta": "a"},
            {"type": "reasoning-delta", "id": "r", "delta": "a"},
            {"type": "start-step"}, {"type": "finish-step"}, {"type": "reset-step"}, *_BAD,
        ],
        first=[{"type": "start"}],
        last=[{"type": "finish", "finishReason": "tool-calls"}],
    ),
    "latitude": Stream(
        [
            _of_chain({"type": "text-delta", "textDelta": "a"}),
            _of_chain({"type": "tool-call", "toolCallId": f"c{NUMBER}", "toolName": "f", "args": {"a": NUMBER}}),
            _of_chain({"type": "tool-result", "toolCallId": f"c{NUMBER}", "result": "x"}),
            _of_chain({"type": "tool-input-start", "toolCallId": f"c{NUMBER}", "toolName": "f"}),
            _of_chain({"type": "provider-completed", "response": {"text": "a"}}, "latitude-event"),
            _of_chain({"type": "provider-completed", "response": {"toolCalls": [MANY, _LISTED]}}, "latitude-event"),
            _of_chain({"type": "provider-completed", "toolCalls": [MANY, {"name": "f"}]}, "latitude-event"),
            _of_chain({"type": "tools-requested", "tools": [MANY, _LISTED]}, "latitude-event"),
            *_BAD,
        ],
        last=[_of_chain({"type": "chain-completed", "response": {"text": "a"}}, "latitude-event")],
    ),
    "bedrock": Stream(
        [
            _converse("Start", NUMBER, start={"toolUse": {"toolUseId": f"c{NUMBER}", "name": "f"}}),
            _converse("Start", NUMBER, start={"toolUse": {"toolUseId": "s", "name": "f", "type": "server_tool_use"}}),
            _converse("Delta", NUMBER, delta={"toolUse": {"input": '{"a": 1'}}),
            _converse("Delta", 0, delta={"toolUse": {"input": f'{{"a": "{LONG}"}}'}}),
            _converse("Delta", NUMBER, delta={"toolUse": {"input": 5}}),
            _converse("Delta", "odd", delta={"toolUse": 5}),
            _converse("Delta", NUMBER, delta={"text": "a"}),
            _converse("Delta", NUMBER, delta={"reasoningContent": {"text": "a", "signature": "s"}}),
            _converse("Stop", NUMBER),
            {"metadata": {"usage": {"inputTokens": NUMBER}, "trace": {"a": NUMBER}}},
            {"chunk": {"bytes": "e30="}}, {"chunk": {"bytes": "?"}}, {"odd": {"a": NUMBER}},
        ],
        last=[{"messageStop": {"stopReason": "tool_use"}}],
    ),
    "cohere": Stream(
        [
            _told("content-delta", NUMBER, content={"text": "a"}),
            _told("content-delta", NUMBER, content={"thinking": "a"}),
            _told("tool-plan-delta", tool_plan="a"),
            _told("tool-call-start", NUMBER, tool_calls={"id": f"c{NUMBER}", "function": {"name": "f"}}),
            _told("tool-call-delta", NUMBER, tool_calls={"function": {"arguments": '{"a": 1'}}),
            _told("tool-call-delta", 0, tool_calls={"function": {"arguments": f'{{"a": "{LONG}"}}'}}),
            _told("tool-call-delta", NUMBER, tool_calls={"function": {"arguments": 5}}),
            _told("tool-call-delta", None, tool_calls=5),
            _told("tool-call-end", NUMBER),
            _told("citation-start", NUMBER, citations={"start": NUMBER, "end": 5}),
            *_BAD,
        ],
        first=[{"type": "message-start", "id": "m"}],
        last=[{"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}}],
    ),
}  # fmt: skip

EVENTS: list[Any] = [
    {"type": "text-delta", "text": "a "},
    {"type": "text-delta", "text": '###:{"name": "f", "arguments": {}}\n'},
    {"type": "text-delta", "text": "\n"},
    {"type": "reasoning-delta", "text": "a", "signature": "s"},
    {"type": "tool-call-start", "key": f"k{NUMBER}", "id": f"c{NUMBER}", "name": "f"},
    {"type": "tool-call-delta", "key": f"k{NUMBER}", "text": '{"a": 1'},
    {"type": "tool-call-delta", "key": "k0", "text": f'{{"a": "{LONG}"}}'},
    {"type": "tool-call-delta", "key": "k0", "text": " "},
    {"type": "tool-call", "key": f"k{NUMBER}", "name": "f", "arguments": "{}", "id": "c"},
    {"type": "tool-call", "key": f"k{NUMBER}", "name": "f", "arguments": {"a": LONG}},
    {"type": "warning", "code": "bad_frame", "message": "no"},
    {"type": "raw", "data": {"a": NUMBER}},
    {"type": "usage", "usage": {"input": NUMBER}},
    {"type": "provider-completed", "finish_reason": "tool_calls", "ends_run": False},
    {"type": "provider-completed", "tool_calls": [MANY, {"type": "tool-call", "key": "x", "name": "f"}]},
    {"type": "provider-completed", "text": "a ", "ends_run": False},
]
"""Source events, as a machine is fed with them."""

_CALL = {"id": f"c{NUMBER}", "type": "function", "function": {"name": f"f{NUMBER}", "arguments": '{"a": 1}'}}
_USE = {"type": "tool_use", "id": f"c{NUMBER}", "name": "f", "input": {}}
_PART = {"type": "tool-f", "toolCallId": f"c{NUMBER}", "input": {}}
_THOUGHT = {"type": "thinking", "thinking": "a", "signature": "s"}

MESSAGES: list[Any] = [
    {"type": "function_call", "call_id": f"c{NUMBER}", "name": f"f{NUMBER}", "arguments": "{}"},
    {"type": "function_call_output", "call_id": f"c{NUMBER}", "output": "x"},
    {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "a"}], "encrypted_content": "s"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "abc " * 50}]},
    {"role": "assistant", "content": "a", "tool_calls": [MANY, _CALL]},
    {"role": "assistant", "tool_calls": [{"id": "same", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "assistant", "content": [MANY, _USE]},
    {"role": "assistant", "content": [MANY, _THOUGHT]},
    {"role": "tool", "tool_call_id": f"c{NUMBER}", "content": "x"},
    {"role": "tool", "tool_name": f"f{NUMBER}", "content": "x"},
    {"role": "tool", "content": "x"},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{NUMBER}", "content": "x"}]},
    {"role": "user", "content": [MANY, {"type": "text", "text": "a"}]},
    {"type": "user_input", "content": [MANY, {"type": "text", "text": "a"}]},
    {"type": "model_output", "content": [MANY, {"type": "text", "text": "a"}]},
    {"type": "thought", "signature": "s", "summary": [MANY, {"type": "text", "text": "a"}]},
    {"type": "function_call", "id": f"c{NUMBER}", "name": f"f{NUMBER}", "arguments": {}, "signature": "s"},
    {"type": "function_result", "call_id": f"c{NUMBER}", "result": [MANY, {"type": "text", "text": "a"}]},
    {"type": "google_search_call", "id": f"s{NUMBER}"},
    {"type": "message.output", "content": [MANY, {"type": "text", "text": "a"}], "id": "m"},
    {"type": "message.output", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]},
    {"type": "function.call", "tool_call_id": f"c{NUMBER}", "name": f"f{NUMBER}", "arguments": "{}"},
    {"type": "function.result", "tool_call_id": f"c{NUMBER}", "result": "x"},
    {"type": "tool.execution", "name": "f", "arguments": "{}"},
    {"role": "user", "content": "a"},
    {"role": "system", "content": "a"},
    {"role": "assistant", "parts": [MANY, {**_PART, "state": "output-available", "output": {"a": NUMBER}}]},
    {"role": "assistant", "parts": [MANY, {**_PART, "state": "input-available"}, {"type": "step-start"}]},
    {"role": "assistant", "parts": [MANY, {"type": "text", "text": "a", "providerMetadata": {"google": {}}}]},
    {"role": "assistant", "id": f"a{NUMBER}", "toolCalls": [MANY, _CALL]},
    {"role": "tool", "id": f"t{NUMBER}", "toolCallId": f"c{NUMBER}", "content": "x"},
    {"role": "reasoning", "id": f"r{NUMBER}", "content": "a", "encryptedValue": '{"format":"gemini","signature":"s"}'},
    {"role": "model", "parts": [MANY, {"functionCall": {"name": f"f{NUMBER}", "args": {}}, "thoughtSignature": "s"}]},
    {"role": "user", "parts": [MANY, {"functionResponse": {"name": f"f{NUMBER}", "response": {"result": "x"}}}]},
    {"role": "assistant", "content": [MANY, {"toolUse": {"toolUseId": f"c{NUMBER}", "name": "f", "input": {}}}]},
    {"role": "user", "content": [MANY, {"toolResult": {"toolUseId": f"c{NUMBER}", "content": [{"text": "x"}]}}]},
    {"role": "assistant", "tool_plan": "a", "content": [MANY, {"type": "server_tool_use", "id": "s", "name": "f"}]},
    {"type": "web_search_call", "id": f"w{NUMBER}", "status": "completed"},
    {"type": "function_call", "call_id": f"d_{NUMBER}", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"},
]
"""Messages of a client's, in all formats."""


def _property(schema: Any) -> dict[str, Any]:
    return {"properties": {f"p{NUMBER}": schema}}


def _definition(schema: Any) -> dict[str, Any]:
    return {"$defs": {f"d{NUMBER}": schema}}


_NEXT = {"$ref": f"#/$defs/d{NEXT}"}

SCHEMAS: list[Any] = [
    _property({"type": "string", "description": "a", "enum": ["b"]}),
    _property({"$ref": f"#/$defs/d{NUMBER}"}),
    _property({"$ref": "#/$defs/d0"}),
    _property({"anyOf": [{"$ref": "#/$defs/d0"}, {"type": "null"}]}),
    _property({"type": "array", "items": {"$ref": "#/$defs/d0"}}),
    _definition({"type": "object", "properties": {"a": _NEXT, "b": _NEXT}, "required": ["a"]}),
    _definition({"anyOf": [_NEXT, _NEXT]}),
    _definition(_NEXT),
    _definition({"type": "string", "description": LONG}),
    _definition({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}}),
    {"required": [f"p{NUMBER}"]},
    {"properties": {"e": {"type": "string", "enum": [f"v{NUMBER}"]}}},
    {"properties": {"o": {"type": "object", "properties": {f"q{NUMBER}": {}}, "required": [f"q{NUMBER}"]}}},
]
"""Parts of a schema, which are put into one another."""
