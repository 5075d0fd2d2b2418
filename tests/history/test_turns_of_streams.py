"""A streamed turn is sent back unchanged: each block, item and part at its place, at every cut."""

from __future__ import annotations

import json
from typing import Any

from streamtools import StreamMachine
from streamtools.history import Step, write_messages
from streamtools.history.parts import steps_to_history
from streamtools.limits import DEFAULT_LIMITS
from streamtools.sources.detection import ADAPTERS
from streamtools.stream.collector import Collector
from tests.sources.adapters import cuts
from tests.support import event_streams
from tests.support.cases import together

Values = list[dict[str, Any]]


def sse(values: Values) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def block(index: int, kind: str, *deltas: dict[str, Any], **start: Any) -> Values:
    begin = {"type": "content_block_start", "index": index, "content_block": {"type": kind, **start}}
    told = [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
    return [begin, *told, {"type": "content_block_stop", "index": index}]


def anthropic(*blocks: Values, end: Values | None = None) -> Values:
    last: Values = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    begin: Values = [{"type": "message_start", "message": {"id": "m", "content": []}}]
    return [*begin, *(event for each in blocks for event in each), *(end or []), *last]


def text(value: str) -> dict[str, Any]:
    return {"type": "text_delta", "text": value}


def partial(value: str) -> dict[str, Any]:
    return {"type": "input_json_delta", "partial_json": value}


def responses(*items: dict[str, Any]) -> Values:
    told: Values = []
    for at, item in enumerate(items):
        told.append({"type": "response.output_item.added", "output_index": at, "item": {**item, "content": []}})
        if item["type"] == "message":
            delta = {"type": "response.output_text.delta", "item_id": item["id"], "output_index": at}
            told.append({**delta, "delta": item["content"][0]["text"]})
        told.append({"type": "response.output_item.done", "output_index": at, "item": item})
    return [*told, {"type": "response.completed", "response": {"output": [*items]}}]


def message(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "id": id,
        "role": "assistant",
        "content": [{"type": "output_text", "text": text}],
        **more,
    }


def gemini(*chunks: list[dict[str, Any]]) -> Values:
    told: Values = [{"candidates": [{"content": {"role": "model", "parts": parts}}]} for parts in chunks]
    return [*told, {"candidates": [{"finishReason": "STOP"}]}]


def chat(*deltas: dict[str, Any], finish: str = "tool_calls") -> Values:
    told: Values = [{"choices": [{"index": 0, "delta": each}]} for each in deltas]
    return [*told, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]


CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
SAID = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
DETAIL = {"type": "reasoning.text", "index": 0, "format": "x"}
QUOTE = {"type": "char_location", "cited_text": "c"}
CALLER = {"type": "code_execution_20250825", "tool_id": "srv"}
SEARCHED = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "x"}}
THOUGHT = {
    "type": "reasoning",
    "id": "rs",
    "summary": [{"type": "summary_text", "text": "Hm"}],
    "encrypted_content": "e",
}

STREAMS: dict[str, tuple[str, Values, Any]] = {
    "a search between texts, which cite it": (
        "anthropic",
        anthropic(
            block(
                0,
                "thinking",
                {"type": "thinking_delta", "thinking": "Hm"},
                {"type": "signature_delta", "signature": "s"},
            ),
            block(1, "text", text("I look"), text(":\n\n"), text=""),
            block(2, "server_tool_use", partial('{"query":'), partial('"x"}'), id="srv", name="web_search", input={}),
            block(3, "web_search_tool_result", tool_use_id="srv", content=[{"url": "u", "page_age": None}]),
            block(4, "text", text("It "), text=""),
            block(5, "text", text("is "), {"type": "citations_delta", "citation": QUOTE}, text("so"), text=""),
            block(6, "text", text("."), text=""),
        ),
        [
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "text", "text": "I look:\n\n"},
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv", "content": [{"url": "u", "page_age": None}]},
            {"type": "text", "text": "It "},
            {"type": "text", "text": "is so", "citations": [QUOTE]},
            {"type": "text", "text": "."},
        ],
    ),
    "code that is run, and the call that its program makes": (
        "anthropic",
        anthropic(
            block(0, "server_tool_use", partial('{"code":"f()"}'), id="srv", name="code_execution", input={}),
            block(1, "tool_use", partial('{"a":1}'), id="t", name="f", input={}, caller=CALLER),
            end=[
                {"type": "message_delta", "delta": {"container": {"id": "box", "expires_at": "2000-01-01T00:00:00Z"}}}
            ],
        ),
        [
            {"type": "server_tool_use", "id": "srv", "name": "code_execution", "input": {"code": "f()"}},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "caller": CALLER},
        ],
    ),
    "reasoning, what it led to, and messages with their phase": (
        "responses",
        responses(
            THOUGHT,
            SEARCHED,
            message("m1", "I look.", phase="commentary"),
            {"type": "custom_tool_call", "id": "ct", "call_id": "c", "name": "f", "input": "free"},
            message("m2", "So. "),
            message("m3", "Bye.", phase="final_answer"),
            {"type": "mcp_approval_request", "id": "ma", "arguments": "{}", "name": "n", "server_label": "s"},
        ),
        [
            THOUGHT,
            SEARCHED,
            {"role": "assistant", "content": "I look.", "phase": "commentary"},
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "free"},
            {"role": "assistant", "content": "So. "},
            {"role": "assistant", "content": "Bye.", "phase": "final_answer"},
            {"type": "mcp_approval_request", "id": "ma", "arguments": "{}", "name": "n", "server_label": "s"},
        ],
    ),
    "signatures on the parts on which they came": (
        "gemini",
        gemini(
            [{"text": "Hm", "thought": True}],
            [{"text": "I "}],
            [{"text": "look"}, {"text": ".", "thoughtSignature": "s1"}],
            [{"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s2"}],
            [{"codeExecutionResult": {"outcome": "OUTCOME_OK"}}, {"text": "One."}],
            [{"toolCall": {"toolType": "GOOGLE_SEARCH", "args": {}, "id": "t"}}, {"toolResponse": {"id": "t"}}],
            [{"functionCall": {"name": "f", "args": {}, "id": "c"}, "thoughtSignature": "s3"}],
            [{"text": "Bye."}],
            [{"text": "", "thoughtSignature": "s4"}],
        ),
        [
            {"text": "I look"},
            {"text": ".", "thoughtSignature": "s1"},
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s2"},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
            {"text": "One."},
            {"toolCall": {"toolType": "GOOGLE_SEARCH", "args": {}, "id": "t"}},
            {"toolResponse": {"id": "t"}},
            {"functionCall": {"name": "f", "args": {}, "id": "c"}, "thoughtSignature": "s3"},
            {"text": "Bye."},
            {"text": "", "thoughtSignature": "s4"},
        ],
    ),
    "reasoning, and its details piece by piece": (
        "openai",
        chat(
            {"reasoning": "H", "reasoning_details": [DETAIL | {"text": "H"}]},
            {"reasoning": "m", "reasoning_details": [DETAIL | {"text": "m"}]},
            {"reasoning_details": [{"type": "reasoning.text", "signature": "s", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "d", "id": "r", "index": 1}]},
            {"tool_calls": [CALL]},
        ),
        {
            "content": None,
            "tool_calls": [SAID],
            "reasoning": "Hm",
            "reasoning_details": [
                DETAIL | {"text": "Hm", "signature": "s"},
                {"type": "reasoning.encrypted", "data": "d", "id": "r", "index": 1},
            ],
        },
    ),
    "thinking of Mistral's": (
        "openai",
        chat(
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "H"}]}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m"}]}]},
            {"content": "Hi"},
            {"tool_calls": [CALL]},
        ),
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]},
                {"type": "text", "text": "Hi"},
            ],
            "tool_calls": [SAID],
        },
    ),
}


def turn(format: str, chunks: list[bytes], dialects: Any = ()) -> Step:
    """Return the step that a stream produces."""
    adapter, machine, collector = ADAPTERS[format](DEFAULT_LIMITS), StreamMachine(dialects=dialects), Collector(())
    told = [event for chunk in chunks for event in adapter.feed(chunk)] + adapter.close()
    collector.read_from(type("Source", (), {"origin": (adapter.format, None, None)}))
    for event in told:
        collector.take(machine.feed(event))
    collector.take(machine.close())
    (step,) = collector.read().steps
    return step


def sent(format: str, step: Step) -> Any:
    """Return the messages of a turn for the next request, without results."""
    written = write_messages(steps_to_history([Step(step.turn)]), format, unanswered="leave")
    if format == "responses":
        return written
    (message,) = written
    message.pop("role")
    return message if format == "openai" else message["parts" if format == "gemini" else "content"]


@together(("format", "values", "expected"), STREAMS.values(), ids=STREAMS)
def test_a_streamed_turn_is_sent_back_unchanged(format: str, values: Values, expected: Any) -> None:
    """Holds at every cut, with any dialect enabled."""
    stream = sse(values)
    for chunks in cuts(stream):
        assert expected == sent(format, turn(format, chunks))
    assert expected == sent(format, turn(format, [stream], dialects="auto"))


def test_the_container_is_sent_while_it_exists() -> None:
    """It is outside of the messages."""
    from streamtools.conversation import AnthropicMessages, Ask

    format, values, _ = STREAMS["code that is run, and the call that its program makes"]
    for until, expected in (("2000-01-01T00:00:00Z", None), ("2999-01-01T00:00:00Z", "box"), ("never", None)):
        step = turn(format, [sse(values).replace(b"2000-01-01T00:00:00Z", until.encode())])
        body = AnthropicMessages("m", api_key="").body(Ask((*steps_to_history([step]),)))
        assert expected == body.get("container")
        assert "box" not in json.dumps(body["messages"])


def test_tools_of_bedrock_are_sent_back() -> None:
    """Call and result are blocks between the texts, and the turn has Converse's format."""

    def told(kind: str, **value: Any) -> bytes:
        return event_streams.event(f"contentBlock{kind}", {"contentBlockIndex": 1, **value})

    called = {"toolUseId": "t", "name": "nova_grounding", "type": "server_tool_use"}
    result = {"toolUseId": "t", "type": "nova_grounding_result"}
    stream = [
        *(told("Delta", delta={"text": "I look."}), told("Stop")),
        *(
            told("Start", start={"toolUse": called}),
            told("Delta", delta={"toolUse": {"input": '{"a":1}'}}),
            told("Stop"),
        ),
        *(
            told("Start", start={"toolResult": result}),
            told("Delta", delta={"toolResult": [{"text": "x"}]}),
            told("Stop"),
        ),
        *(told("Delta", delta={"text": "So."}), event_streams.event("messageStop", {"stopReason": "end_turn"})),
    ]
    step = turn("bedrock", stream)
    expected = [
        {"text": "I look."},
        {"toolUse": {**called, "input": {"a": 1}}},
        {"toolResult": {**result, "content": [{"text": "x"}]}},
        {"text": "So."},
    ]
    assert expected == sent("bedrock", step)
    assert "nova" not in json.dumps(sent("anthropic", step))


def test_citations_of_bedrock_are_sent_back() -> None:
    """They have the text of their block only. Another provider gets the text."""

    def told(index: int, *deltas: dict[str, Any]) -> list[bytes]:
        stream = [
            event_streams.event("contentBlockDelta", {"contentBlockIndex": index, "delta": each}) for each in deltas
        ]
        return [*stream, event_streams.event("contentBlockStop", {"contentBlockIndex": index})]

    cited = {"title": "a", "sourceContent": [{"text": "b"}], "location": {"documentPage": {"documentIndex": 0}}}
    blocks = [
        *told(0, {"text": "I see: "}),
        *told(1, {"text": "it is so"}, {"citation": cited}),
        *told(2, {"text": "."}),
    ]
    stream = b"".join([*blocks, event_streams.event("messageStop", {"stopReason": "end_turn"})])
    for chunks in cuts(stream):
        step = turn("bedrock", chunks)
        assert [
            {"text": "I see: "},
            {"citationsContent": {"content": [{"text": "it is so"}], "citations": [cited]}},
            {"text": "."},
        ] == sent("bedrock", step)
    assert "I see: it is so." == step.turn.text
    assert "citation" not in json.dumps(sent("anthropic", step))


def test_a_custom_tool_has_its_own_result_type() -> None:
    """The output answers the call."""
    format, values, _ = STREAMS["reasoning, what it led to, and messages with their phase"]
    step = turn(format, [sse(values)])
    items = write_messages(steps_to_history([step]), format, unanswered="cancelled")
    assert {
        "type": "custom_tool_call_output",
        "call_id": "c",
        "output": "this call has no result; it may not have run",
    } == items[-1]


def test_stored_reasoning_stays_with_its_items() -> None:
    """Reasoning that the provider stores by id is sent with the provider's items, not with native calls."""
    bare = {"type": "reasoning", "id": "rs", "summary": []}
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}"}
    hosted = sent("responses", turn("responses", [sse(responses(bare, SEARCHED))]))
    assert [bare, SEARCHED] == hosted
    ours = sent("responses", turn("responses", [sse(responses(bare, call))]))
    assert [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}] == ours
