"""OpenAI's Responses: what is told in pieces, at the end of a part, of an item and of all, or in one of these only.

The streams are written by hand after what OpenAI, its SDK, and servers that speak like it send.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools.errors import Code
from streamtools.events import (
    Call,
    Error,
    FinishReason,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from streamtools.limits import Limits
from streamtools.machine.state_machine import StreamMachine
from streamtools.sources.wire_formats.responses import Responses
from tests.sources.adapters import called, forwarded, read, started, texts, thoughts
from tests.support.cases import together
from tests.support.chat_chunks import sse

Value = dict[str, Any]


def event(kind: str, **more: Any) -> Value:
    return {"type": "response." + kind, **more}


def frames(*events: Value) -> list[bytes]:
    return [sse(each, each["type"]) for each in events]


def numbered(*events: Value, start: int = 0) -> list[Value]:
    return [each | {"sequence_number": number} for number, each in enumerate(events, start)]


def delta(text: str, kind: str = "output_text", id: str | None = "msg_1", at: int | None = 0, **more: Any) -> Value:
    place = {"item_id": id, "output_index": at} | ({} if kind.startswith("f") else {"content_index": 0})
    return event(kind + ".delta", delta=text, **(place | more))


def part_done(kind: str = "output_text", id: str | None = "msg_1", at: int | None = 0, **more: Any) -> Value:
    return event(kind + ".done", item_id=id, output_index=at, **more)


def added(item: Value, at: int | None = 0) -> Value:
    return event("output_item.added", output_index=at, item=item)


def item_done(item: Value, at: int | None = 0) -> Value:
    return event("output_item.done", output_index=at, item=item)


def message(*texts: str, id: str = "msg_1", **more: Any) -> Value:
    parts = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {"type": "message", "id": id, "role": "assistant", "content": parts} | more


def function(arguments: Any = "", id: str | None = "fc_1", call_id: str | None = "call_1", **more: Any) -> Value:
    return {"type": "function_call", "id": id, "call_id": call_id, "name": "f", "arguments": arguments} | more


def custom(input: Any = "", **more: Any) -> Value:
    return {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "f", "input": input} | more


def reasoning(*summary: str, **more: Any) -> Value:
    return {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": each} for each in summary],
    } | more


def completed(*output: Value, status: str = "completed", kind: str | None = None, **more: Any) -> Value:
    return event(kind or status, response={"id": "resp_1", "status": status, "output": list(output), **more})


HALF = sse(r'{"type":"response.output_text.delta","item_id":"msg_1","delta":"a\ud83d"}')
CREATED = event("created", response={"id": "resp_1", "status": "in_progress", "output": []})
IN_PROGRESS = event("in_progress", response={"id": "resp_1", "status": "in_progress", "output": []})
END = event("completed")


def done(
    text: str | None = None, raw: str = "completed", reason: FinishReason = "stop", usage: Usage | None = None
) -> ProviderCompleted:
    return ProviderCompleted(text, None, reason, raw, usage)


CUSTOM = {"responses": {"type": "custom_tool_call"}}
STARTED = ToolCallStart("1", "call_1", "f")

STREAMS: dict[str, tuple[list[bytes], list[SourceEvent]]] = {
    # OpenAI tells a text four times.
    "text": (
        frames(
            *numbered(
                CREATED,
                event("queued", response={}),
                IN_PROGRESS,
                added(message(status="in_progress")),
                event("content_part.added", item_id="msg_1", part={"type": "output_text", "text": ""}),
                delta("Par", logprobs=[], obfuscation="x8"),
                delta(""),
                delta("is"),
                part_done(text="Paris"),
                event("content_part.done", item_id="msg_1", part={"type": "output_text", "text": "Paris"}),
                item_done(message("Paris")),
                completed(
                    message("Paris"),
                    usage={
                        "input_tokens": 9,
                        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
                        "output_tokens": 5,
                        "output_tokens_details": {"reasoning_tokens": 3},
                        "total_tokens": 14,
                    },
                ),
            )
        ),
        [
            *texts("Par", "is"),
            done("Paris", usage=Usage(input=9, output=5, total=14, cache_read=4, cache_write=1, reasoning=3)),
        ],
    ),
    "names in the data only, and no numbers": (
        [sse(CREATED), sse(delta("a")), sse(completed(message("a")))],
        [TextDelta("a"), done("a")],
    ),
    "names of the events only": (
        [sse({"delta": "a"}, "response.output_text.delta"), sse({}, "response.completed")],
        [TextDelta("a"), done()],
    ),
    "a text that only its item tells": (
        frames(added(message()), item_done(message("a", "b")), END),
        [TextDelta("ab"), done()],
    ),
    "a text that only the response tells": (frames(completed(message("a"), message("b", id="msg_2"))), [done("ab")]),
    "the end of a text": (
        frames(delta("a"), part_done(text="ab"), delta("c", content_index=1), item_done(message("ab", "cd")), END),
        [TextDelta("a"), TextDelta("b"), TextDelta("c"), TextDelta("d"), done()],
    ),
    # What was shown stands; the machine is told the whole, and warns.
    "a text that differs from its deltas": (
        frames(delta("ac"), part_done(text="abc"), item_done(message("abc")), completed(message("abc"))),
        [TextDelta("ac"), done("abc")],
    ),
    "a text that is told when nobody asks any more": (
        frames(delta("a"), item_done(message("a")), part_done(text="ab"), item_done(message("abc")), END),
        [TextDelta("a"), done()],
    ),
    # Seen upstream: the terminal event leaves the message out.
    "a response that does not repeat its text": (
        frames(delta("a"), item_done(message("a")), completed(reasoning())),
        [TextDelta("a"), ReasoningDelta("", id="rs_1"), done()],
    ),
    # Gateways: no index, no id, neither, or a new id with each event.
    "items without an index": (
        frames(
            delta("a", at=None),
            delta("b", at=None),
            part_done(text="ab", at=None),
            item_done(message("ab"), None),
            delta("c", id="msg_2", at=None),
            item_done(message("c", id="msg_2"), None),
            END,
        ),
        [TextDelta("a"), TextDelta("b"), TextDelta("c"), done()],
    ),
    "items without an id": (
        frames(delta("a", id=None), part_done(text="ab", id=None), item_done(message("ab")), END),
        [TextDelta("a"), TextDelta("b"), done()],
    ),
    "items without anything": (
        frames(delta("a", id=None, at=None), delta("b", id=None, at=None), item_done(message("ab"), 3), END),
        [TextDelta("a"), TextDelta("b"), done()],
    ),
    "an id with each event": (
        frames(
            added(message(id="1")),
            delta("a", id="2"),
            delta("b", id="3"),
            part_done(text="ab", id="4"),
            item_done(message("ab", id="5")),
            added(function(id="6"), 1),
            delta("{}", "function_call_arguments", "7", 1),
            item_done(function("{}", id="8"), 1),
            completed(message("ab", id="9"), function("{}", id="10")),
        ),
        [*texts("a", "b"), *called("2", "call_1", "f", "{}", arguments="{}"), done("ab")],
    ),
    "the same index for all": (
        frames(
            added(function()),
            delta("{}", "function_call_arguments", "fc_1"),
            item_done(function("{}")),
            added(function(id="fc_2", call_id="call_2")),
            delta("[]", "function_call_arguments", "fc_2"),
            item_done(function("[]", id="fc_2", call_id="call_2")),
            item_done(function("{}", id="fc_3", call_id="call_3")),
            delta("a"),
            END,
        ),
        [
            *called("1", "call_1", "f", "{}", arguments="{}"),
            *called("2", "call_2", "f", "[]", arguments="[]"),
            NativeToolCall("f", "{}", "3", "call_3"),
            TextDelta("a"),
            done(),
        ],
    ),
    # A stream that is resumed may begin before the place where it broke off.
    "what is repeated": (
        frames(
            *numbered(CREATED, added(message()), delta("a"), delta("b"), event("future", x=1), added(function(), 1)),
            *numbered(delta("b"), event("future", x=1), added(function(), 1), start=3),
            *numbered(delta("{}", "function_call_arguments", "fc_1", 1), item_done(function("{}"), 1), start=6),
            *numbered(item_done(function("{}"), 1), completed(message("ab"), function("{}")), start=7),
        ),
        [
            *texts("a", "b"),
            SourceRaw(event("future", x=1, sequence_number=4)),
            *called("2", "call_1", "f", "{}", arguments="{}"),
            done("ab"),
        ],
    ),
    "a number that is always the same, or none": (
        frames(
            *(delta(each) | {"sequence_number": 0} for each in "abc"),
            *(delta(each) | {"sequence_number": "1"} for each in "de"),
            END | {"sequence_number": -1},
        ),
        [*(TextDelta(each) for each in "abcde"), done()],
    ),
    "an end whose number is too low": (
        frames(*numbered(CREATED, delta("a"), delta("b")), *numbered(END)),
        [TextDelta("a"), TextDelta("b"), done()],
    ),
    "an error whose number is too low": (
        frames(*numbered(CREATED, delta("a"), delta("b")), *numbered({"type": "error", "message": "no"})),
        [TextDelta("a"), TextDelta("b"), SourceError("no")],
    ),
    "another response": (
        frames(CREATED, CREATED, event("created", response=None), delta("a"))
        + frames(event("created", response={"id": "resp_2"}), delta("b"), END),
        [TextDelta("a"), SourceError("the provider began its answer again in mid-stream", cause="response.created")],
    ),
    # The refusal is the answer; and the table of finish reasons calls its turn filtered.
    "a refusal": (
        frames(
            delta("I ", "refusal"),
            delta("can't", "refusal"),
            part_done("refusal", refusal="I can't."),
            item_done(message(content=[{"type": "refusal", "refusal": "I can't."}])),
            completed(message(content=[{"type": "refusal", "refusal": "I can't."}])),
        ),
        [TextDelta("I "), TextDelta("can't"), TextDelta("."), done("I can't.", reason="content_filter")],
    ),
    "a refusal that its part tells, and what is none": (
        frames(part_done("refusal", refusal="No."), part_done("refusal", refusal=None), END),
        [TextDelta("No."), done(reason="content_filter")],
    ),
    # Arguments come in deltas, then whole twice, then in the response; the machine compares.
    "calls": (
        frames(
            added(function(status="in_progress")),
            delta('{"x"', "function_call_arguments", "fc_1"),
            delta("", "function_call_arguments", "fc_1"),
            added(function(id="fc_2", call_id="call_2", name="g"), 1),
            delta("{}", "function_call_arguments", "fc_2", 1),
            delta(":1}", "function_call_arguments", "fc_1"),
            part_done("function_call_arguments", "fc_1", arguments='{"x":1}'),
            item_done(function('{"x":1}', status="completed")),
            part_done("function_call_arguments", "fc_2", 1, arguments="{}", name="g"),
            item_done(function("{}", id="fc_2", call_id="call_2", name="g"), 1),
            completed(function('{"x":1}'), function("{}", id="fc_2", call_id="call_2", name="g")),
        ),
        [
            *started("1", "call_1", "f", '{"x"'),
            *started("2", "call_2", "g", "{}"),
            ToolCallDelta("1", ":1}"),
            NativeToolCall("f", '{"x":1}', "1", "call_1"),
            NativeToolCall("g", "{}", "2", "call_2"),
            done(),
        ],
    ),
    "a call that only its item tells": (
        frames(item_done(function('{"x":1}')), completed(function('{"x":1}'))),
        [NativeToolCall("f", '{"x":1}', "1", "call_1"), done()],
    ),
    "a call that only the response tells": (
        frames(completed(function('{"x":1}'), function({"x": 1}, id=None, call_id="call_2"))),
        [NativeToolCall("f", '{"x":1}', "1", "call_1"), NativeToolCall("f", {"x": 1}, "2", "call_2"), done()],
    ),
    "a call whose item is never done": (
        frames(
            added(function()),
            part_done("function_call_arguments", "fc_1", arguments='{"x":1}'),
            part_done("function_call_arguments", "fc_2", 1, arguments="{}", name="g"),
            END,
        ),
        [
            STARTED,
            ToolCallStart("2", None, "g"),
            NativeToolCall("f", '{"x":1}', "1", "call_1"),
            NativeToolCall("g", "{}", "2"),
            done(),
        ],
    ),
    "a call of which nobody tells that it is complete": (
        frames(added(function()), delta("{}", "function_call_arguments", "fc_1"), END),
        [STARTED, ToolCallDelta("1", "{}"), done()],
    ),
    # Some tell the arguments in the first event, and then no more; some repeat only their beginning there.
    "arguments that come first": (
        frames(
            added(function('{"x":1}')),
            item_done(function("")),
            added(function('{"y"', id="fc_2", call_id="call_2"), 1),
            delta('{"y"', "function_call_arguments", "fc_2", 1),
            delta(":2}", "function_call_arguments", "fc_2", 1),
            item_done(function("", id="fc_2", call_id="call_2"), 1),
            END,
        ),
        [*called("1", "call_1", "f", arguments='{"x":1}'), *called("2", "call_2", "f", '{"y"', ":2}"), done()],
    ),
    "a call whose name comes late": (
        frames(
            delta("{", "function_call_arguments", "fc_1"),
            part_done("function_call_arguments", "fc_1", arguments="{}", name="f"),
            part_done("function_call_arguments", "fc_1", arguments="{}", name="f"),
            item_done(function("{}")),
            part_done("function_call_arguments", "fc_1", arguments="{}", name="f"),
            END,
        ),
        [
            *started("1", None, None, "{"),
            ToolCallStart("1", None, "f"),
            NativeToolCall("f", "{}", "1", "call_1"),
            done(),
        ],
    ),
    # max_output_tokens: the item is done, and says that it is not complete.
    "a call that is cut off": (
        frames(
            added(function()),
            delta('{"x"', "function_call_arguments", "fc_1"),
            item_done(function('{"x"', status="incomplete")),
            completed(function('{"x"', status="incomplete"), status="incomplete"),
        ),
        [
            *called("1", "call_1", "f", '{"x"', arguments='{"x"', fault=Code.TRUNCATED),
            done(raw="incomplete", reason="length"),
        ],
    ),
    "calls that only a response tells which is cut off": (
        frames(
            completed(
                function("{}", status="completed"),
                function('{"x"', id="fc_2", call_id="call_2"),
                function({}, id="fc_3", call_id="call_3", status="in_progress"),
                status="incomplete",
                incomplete_details={"reason": "max_output_tokens"},
            )
        ),
        [
            NativeToolCall("f", "{}", "1", "call_1"),
            *started("2", "call_2", "f", '{"x"'),
            ToolCallStart("3", "call_3", "f"),
            done(raw="max_output_tokens", reason="length"),
        ],
    ),
    # Custom tools take free text, and no JSON.
    "a custom tool": (
        frames(
            added(custom()),
            event("custom_tool_call_input.delta", item_id="ctc_1", delta='say "hi'),
            event("custom_tool_call_input.delta", item_id="ctc_1", delta='"\n'),
            event("custom_tool_call_input.done", item_id="ctc_1", input='say "hi"\n'),
            item_done(custom('say "hi"\n')),
            END,
        ),
        [
            *called(
                "1", "call_1", "f", '{"input":"say \\"hi', '\\"\\n', '"}', arguments={"input": 'say "hi"\n'}, own=CUSTOM
            ),
            done(),
        ],
    ),
    "custom tools without deltas": (
        frames(item_done(custom("hi")), item_done(custom("", id="ctc_2", call_id="call_2"), 1), END),
        [
            NativeToolCall("f", {"input": "hi"}, "1", "call_1", own=CUSTOM),
            NativeToolCall("f", {"input": ""}, "2", "call_2", own=CUSTOM),
            done(),
        ],
    ),
    "a custom tool that is cut off": (
        frames(
            event("custom_tool_call_input.delta", item_id="ctc_1", delta="hi"),
            completed(custom("hi"), status="incomplete", incomplete_details={"reason": "content_filter"}),
        ),
        [*started("1", None, None, '{"input":"hi'), STARTED, done(raw="content_filter", reason="content_filter")],
    ),
    # The item and what is encrypted of it go back with the next request.
    "summaries of reasoning": (
        frames(
            added(reasoning()),
            event("reasoning_summary_part.added", item_id="rs_1", summary_index=0, part={}),
            event("reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=0, delta="H"),
            event("reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=0, delta="m"),
            event("reasoning_summary_text.done", item_id="rs_1", output_index=0, summary_index=0, text="Hm"),
            event("reasoning_summary_part.done", item_id="rs_1", summary_index=0, part={}),
            event("reasoning_summary_text.delta", item_id="rs_1", output_index=0, summary_index=1, delta="S"),
            event("reasoning_summary_text.done", item_id="rs_1", output_index=0, summary_index=1, text="So"),
            item_done(reasoning("Hm", "So", encrypted_content="ZW5j")),
            delta("a", at=1),
            completed(reasoning("Hm", "So", encrypted_content="ZW5j"), message("a")),
        ),
        [*thoughts("H", "m", "\n\nS", "o"), ReasoningDelta("", signature="ZW5j", id="rs_1"), TextDelta("a"), done("a")],
    ),
    # Open models show what they think; without a signature one item would run into the next.
    "reasoning itself": (
        frames(
            event("reasoning_text.delta", item_id="rs_1", output_index=0, content_index=0, delta="Hm"),
            item_done({"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "Hm"}]}),
            event("reasoning_text.done", item_id="rs_2", output_index=1, content_index=0, text="So"),
            item_done({"type": "reasoning", "id": "rs_2", "encrypted_content": "ZW5j"}, 1),
            event("reasoning_text.delta", item_id="rs_3", output_index=2, content_index=0, delta="then"),
            item_done({"type": "reasoning", "id": None}, 2),
            END,
        ),
        [
            ReasoningDelta("Hm"),
            ReasoningDelta("", id="rs_1"),
            ReasoningDelta("\n\nSo"),
            ReasoningDelta("", signature="ZW5j", id="rs_2"),
            ReasoningDelta("then"),
            done(),
        ],
    ),
    "reasoning that only its item tells": (
        frames(
            item_done(reasoning("Hm", "So")),
            completed(reasoning("Hm", "So"), reasoning("then", id="rs_2", encrypted_content="ZW5j")),
        ),
        [
            ReasoningDelta("Hm\n\nSo"),
            ReasoningDelta("", id="rs_1"),
            ReasoningDelta("\n\nthen"),
            ReasoningDelta("", signature="ZW5j", id="rs_2"),
            done(),
        ],
    ),
    # What OpenAI runs itself nobody else must; the item has the results.
    "hosted tools": (
        frames(
            added({"type": "web_search_call", "id": "ws_1", "status": "in_progress"}),
            event("web_search_call.searching", item_id="ws_1"),
            item_done({"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}}),
            item_done({"type": "file_search_call", "id": "fs_1", "queries": ["x"], "results": []}, 1),
            item_done({"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "outputs": None}, 2),
            event("image_generation_call.partial_image", item_id="ig_1", partial_image_b64="QQ=="),
            item_done({"type": "image_generation_call", "id": "ig_1", "result": "QUE="}, 3),
            item_done({"type": "mcp_call", "id": "mcp_1", "name": "echo", "arguments": "{}", "output": "y"}, 4),
            completed({"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}}),
        ),
        [
            SourceRaw(event("web_search_call.searching", item_id="ws_1")),
            NativeToolCall("web_search", {"query": "x"}, "1", "ws_1", True),
            SourceRaw({"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}}, "responses"),
            NativeToolCall("file_search", {"queries": ["x"]}, "2", "fs_1", True),
            SourceRaw({"type": "file_search_call", "id": "fs_1", "queries": ["x"], "results": []}, "responses"),
            NativeToolCall("code_interpreter", {"code": "1+1"}, "3", "ci_1", True),
            SourceRaw({"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "outputs": None}, "responses"),
            SourceRaw(event("image_generation_call.partial_image", item_id="ig_1", partial_image_b64="QQ==")),
            NativeToolCall("image_generation", None, "4", "ig_1", True),
            SourceRaw({"type": "image_generation_call", "id": "ig_1", "result": "QUE="}, "responses"),
            NativeToolCall("echo", "{}", "5", "mcp_1", True),
            SourceRaw(
                {"type": "mcp_call", "id": "mcp_1", "name": "echo", "arguments": "{}", "output": "y"}, "responses"
            ),
            done(),
        ],
    ),
    # The client's own, and no functions: whoever uses them reads them himself.
    "computers, shells and patches": (
        frames(
            item_done({"type": "computer_call", "id": "cu_1", "call_id": "call_1", "action": {"type": "click"}}),
            event("shell_call_command.delta", delta="ls", command_index=0),
            item_done({"type": "local_shell_call", "id": "lsh_1", "action": {"command": ["ls"]}}, 1),
            completed({"type": "apply_patch_call", "id": "apc_1", "operation": {}}),
        ),
        [
            SourceRaw(
                {"type": "computer_call", "id": "cu_1", "call_id": "call_1", "action": {"type": "click"}}, "responses"
            ),
            SourceRaw(event("shell_call_command.delta", delta="ls", command_index=0)),
            SourceRaw({"type": "local_shell_call", "id": "lsh_1", "action": {"command": ["ls"]}}, "responses"),
            SourceRaw({"type": "apply_patch_call", "id": "apc_1", "operation": {}}, "responses"),
            done(),
        ],
    ),
    "annotations, and parts that are no text": (
        frames(
            delta("a"),
            event("output_text.annotation.added", item_id="msg_1", output_index=0, annotation={"type": "url_citation"}),
            event("audio.delta", delta="QQ=="),
            item_done(
                message(content=[{"type": "output_text", "text": "a", "annotations": [1]}, {"type": "output_image"}])
            ),
            item_done(message(id="m2", content=[{"type": "output_text", "text": "b", "annotations": [2]}]), 1),
            completed(message("a"), message("b", id="m2"), message(id="m3", content=[{"type": [], "text": "c"}, 5])),
        ),
        [
            TextDelta("a"),
            SourceRaw(
                event(
                    "output_text.annotation.added", item_id="msg_1", output_index=0, annotation={"type": "url_citation"}
                )
            ),
            *forwarded(event("audio.delta", delta="QQ=="), {"type": "output_image"}),
            TextDelta("b"),
            *forwarded({"type": "output_text", "text": "b", "annotations": [2]}, {"type": [], "text": "c"}),
            done("ab"),
        ],
    ),
    # One error, in either shape, although two events tell it.
    "an error that nests": (
        frames(
            CREATED,
            {"type": "error", "error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "Pay"}},
            event("failed", response={"status": "failed", "error": {"code": "insufficient_quota", "message": "Pay"}}),
        ),
        [SourceError("Pay", cause="insufficient_quota insufficient_quota")],
    ),
    "an error that is flat": (
        frames({"type": "error", "code": "rate_limit_exceeded", "message": "Slow down", "param": None}, END),
        [SourceError("Slow down", cause="rate_limit_exceeded")],
    ),
    "a response that failed": (
        frames(
            delta("a"),
            completed(status="failed", error={"code": "server_error", "message": "no"}, usage={"input_tokens": 3}),
        ),
        [TextDelta("a"), SourceUsage(Usage(input=3)), SourceError("no", cause="server_error")],
    ),
    "a failure that calls itself completed": (
        frames(completed(status="failed", kind="completed", error=None)),
        [SourceError("the provider reported an error")],
    ),
    "an error with another name": (
        frames(event("error", message="no"), END),
        [SourceError("no", cause="response.error")],
    ),
    "max_output_tokens": (
        frames(completed(status="incomplete", incomplete_details={"reason": "max_output_tokens"})),
        [done(raw="max_output_tokens", reason="length")],
    ),
    "incomplete without a reason": (
        frames(event("incomplete", response={"status": "completed", "incomplete_details": "x"})),
        [done(raw="incomplete", reason="length")],
    ),
    "cancelled": (frames(event("cancelled"), END), [done(raw="cancelled", reason="cancelled")]),
    # Some gateways call the end so, and its status tells which it is.
    "done": (frames(completed(status="cancelled", kind="done")), [done(raw="cancelled", reason="cancelled")]),
    "no end": (frames(delta("a"), part_done(text="a"), item_done(message("a"))), [TextDelta("a")]),
    "[DONE], which earns nothing": ([*frames(delta("a")), b"data: [DONE]\n\n"], [TextDelta("a")]),
    "[DONE], behind the end": (
        [*frames(delta("a")), b"data: [DONE]\n\n", *frames(END, delta("b")), b"data: [DONE]\n\n"],
        [TextDelta("a"), done()],
    ),
    "events nobody knows": (
        [
            *frames({"type": "keepalive"}, event("future", x=1)),
            sse([3]),
            sse("null"),
            b"event: ping\n\n",
            sse({"x": 2}),
            *frames(END),
        ],
        [SourceRaw(event("future", x=1)), SourceRaw([3]), SourceRaw(None), SourceRaw({"x": 2}), done()],
    ),
    "fields of an odd type cost themselves": (
        frames(
            event("created", response=[]),
            delta("a", id=5, at="x"),  # type: ignore[arg-type]
            event("output_text.delta", delta={"text": "b"}),
            event("output_text.done", item_id=[], text=7),
            event("refusal.done", refusal={}),
            event("output_item.added", item="x"),
            event("output_item.added", item={"type": 5, "id": {}}),
            event("output_item.done", item=None),
            item_done(function(7, id=5, call_id=[], name={}, status=[])),  # type: ignore[arg-type]
            item_done(message(id=[], content="x"), 1),  # type: ignore[arg-type]
            item_done(reasoning(id=0, summary={}, encrypted_content=1), 2),
            item_done({"type": "web_search_call", "id": 1, "action": "x", "name": 3}, 3),
            event("completed", response={"output": [5, {"x": 1}], "status": [], "usage": "u"}),
        ),
        [
            TextDelta("a"),
            SourceRaw(event("output_text.delta", delta={"text": "b"})),
            NativeToolCall(None, 7, "4", fault=Code.INVALID_ARGUMENTS),
            NativeToolCall("web_search", {"action": "x"}, "6", None, True),
            SourceRaw({"type": "web_search_call", "id": 1, "action": "x", "name": 3}, "responses"),
            SourceRaw({"x": 1}),
            done(),
        ],
    ),
    # Escapes of a character beyond U+FFFF that stand in two deltas.
    "pairs in two deltas": (
        [
            sse(r'{"type":"response.output_text.delta","item_id":"m","delta":"a\ud83d"}'),
            sse(r'{"type":"response.output_text.delta","item_id":"m","delta":"\ude00b"}'),
            *frames(part_done(text="a😀b", id="m"), event("future", x="😀")),
            sse(r'{"type":"response.reasoning_text.delta","item_id":"r","delta":"c\ud83d"}'),
            sse(r'{"type":"response.reasoning_text.delta","item_id":"r","delta":"\ude01"}'),
            *frames(added(function(), 5), added(custom(call_id="call_2"), 6)),
            sse(r'{"type":"response.function_call_arguments.delta","item_id":"fc_1","delta":"{\"x\":\"\ud83d"}'),
            sse(r'{"type":"response.custom_tool_call_input.delta","item_id":"ctc_1","delta":"\ud83d"}'),
            sse(r'{"type":"response.function_call_arguments.delta","item_id":"fc_1","delta":"\ude02\"}"}'),
            sse(r'{"type":"response.custom_tool_call_input.delta","item_id":"ctc_1","delta":"\ude03"}'),
            *frames(item_done(function('{"x":"😂"}'), 5), item_done(custom("😃", call_id="call_2"), 6), END),
        ],
        [
            *texts("a", "😀b"),
            SourceRaw(event("future", x="😀")),
            *thoughts("c", "😁"),
            ToolCallStart("3", "call_1", "f"),
            ToolCallStart("4", "call_2", "f"),
            ToolCallDelta("3", '{"x":"'),
            ToolCallDelta("3", '😂"}'),
            ToolCallDelta("4", '{"input":"😃'),
            NativeToolCall("f", '{"x":"😂"}', "3", "call_1"),
            ToolCallDelta("4", '"}'),
            NativeToolCall("f", {"input": "😃"}, "4", "call_2", own=CUSTOM),
            done(),
        ],
    ),
    "a half whose other half is only told at the end": (
        [HALF, *frames(part_done(text="a😀"), item_done(message("a😀")), completed(message("a😀")))],
        [TextDelta("a"), TextDelta("😀"), done("a😀")],
    ),
    "a half whose other half is only in the item": (
        [HALF, *frames(item_done(message("a😀")), END)],
        [TextDelta("a"), TextDelta("😀"), done()],
    ),
}


def test_arguments_that_nest_too_deep_are_a_fault() -> None:
    """The call is reported as faulty, because its arguments cannot be written as JSON."""
    deep = '{"x":' + "[" * 100 + "]" * 100 + "}"
    item = '{"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":' + deep + "}"
    hosted = '{"type":"web_search_call","id":"ws_1","action":' + deep + "}"
    stream = [sse('{"type":"response.output_item.done","item":' + each + "}") for each in (item, hosted)]
    first, second, third, fourth = read(Responses, *stream, *frames(END))
    assert first == NativeToolCall("f", None, "1", "call_1", fault=Code.TOO_DEEP)
    assert second == NativeToolCall("web_search", None, "2", "ws_1", True)
    assert isinstance(third, SourceWarning)
    assert fourth == done()


def test_text_for_comparison_is_bounded() -> None:
    """Text over the limit is not compared with the end of its item."""
    stream = frames(delta("abc"), delta("def"), part_done(text="abcdefgh"), item_done(message("abcdefgh")), END)
    assert read(lambda: Responses(Limits(text=6)), *stream) == [*texts("abc", "def", "gh"), done()]
    assert read(lambda: Responses(Limits(text=5)), *stream) == [TextDelta("abc"), TextDelta("def"), done()]
    thoughts = frames(event("reasoning_text.delta", delta="abcdef"), event("reasoning_text.done", text="abcdefgh"), END)
    assert read(lambda: Responses(Limits(text=5)), *thoughts) == [ReasoningDelta("abcdef"), done()]


# What hostile eyes have found.


def run(*events: Value) -> list[str]:
    """Return the calls that a stream earns, and the codes of those that are at fault."""
    machine = StreamMachine()
    stream = [sse(each) for each in events]
    machine.start()
    told = [each for event in read(Responses, *stream) for each in machine.feed(event)] + machine.close()
    calls = [f"{each.call.name} {json.dumps(each.call.arguments)}" for each in told if isinstance(each, Call)]
    return calls + [str(each.code.value) for each in told if isinstance(each, Error)]


GOOD = function('{"x":1}', id="good", call_id="good", name="good")


@together("value", [5, 0, [1], [], True, False, 1.5])
@together("kind", ["function_call_arguments", "custom_tool_call_input"])
def test_arguments_of_the_wrong_type_are_a_fault(kind: str, value: Any) -> None:
    """They never count as missing, and the other calls survive."""
    item, field = (function, "arguments") if kind.startswith("f") else (custom, "input")
    bad, id = item(value), item()["id"]
    for events in (
        [item_done(bad)],
        [added(bad), item_done(item())],
        [added(item()), part_done(kind, id, **{field: value})],
        [added(item()), event(kind + ".delta", item_id=id, output_index=0, delta=value), item_done(item())],
        [added(item()), delta("{}", kind, id), event(kind + ".delta", item_id=id, output_index=0, delta=value)],
    ):
        assert ['good {"x": 1}', "invalid_arguments"] == run(*events, item_done(GOOD, 1), completed())
    assert ['good {"x": 1}', "invalid_arguments"] == run(completed(bad, GOOD))


def test_an_object_is_a_fault_as_input_of_a_custom_tool() -> None:
    """An object is a fault in the place of text."""
    assert ["invalid_arguments"] == run(item_done(custom({"cmd": "rm"})), completed())
    piece = event("function_call_arguments.delta", item_id="fc_1", output_index=0, delta={"to": 1})
    assert ["invalid_arguments"] == run(added(function()), piece, item_done(function("")), completed())
    assert ["f {}"] == run(item_done(function("{}")), piece, completed())


@pytest.mark.parametrize("status", ["incomplete", "failed", "cancelled"])
def test_a_call_with_the_status_incomplete_never_runs(status: str) -> None:
    """Complete JSON and a completed response do not change that."""
    bad = function("{}", status=status)
    told = part_done("function_call_arguments", "fc_1", arguments="{}")
    for events in (
        [item_done(bad), completed()],
        [item_done(bad), completed(function("{}", status="completed"))],
        [completed(bad)],
        [added(function()), delta("{}", "function_call_arguments", "fc_1"), completed(bad)],
        [added(function()), told, completed(bad)],
        [added(function("", status=status)), delta("{}", "function_call_arguments", "fc_1"), completed()],
    ):
        assert ["truncated"] == run(*events)


def pay(to: str = "bob", id: str | None = "f", call_id: str | None = "a") -> Value:
    return function(json.dumps({"to": to}), id=id, call_id=call_id, name="pay", status="completed")


BOB, ANN = 'pay {"to": "bob"}', 'pay {"to": "ann"}'
PIECE = "function_call_arguments"


@together("place", [0, None])
@together("last", [pay(id="f2", call_id="b"), pay(id="f2", call_id=None), pay(id=None, call_id=None)])
@together("first", [pay(), pay(call_id=None), pay(id=None, call_id=None)])
def test_a_reported_call_is_not_repeated_under_other_ids(first: Value, last: Value, place: int | None) -> None:
    """The final output may give it other ids or none, and may omit earlier items."""
    assert [BOB] == run(item_done(first, place), completed(last))
    assert [BOB] == run(item_done(first, place), completed(reasoning(), last))
    assert [BOB] == run(item_done(first, 1), completed(last))
    open_item = first | {"arguments": ""}
    pieces = [added(open_item, place), delta('{"to":"bob"}', PIECE, first["id"], place)]
    assert [BOB] == run(*pieces, completed(last))
    assert [BOB] == run(*pieces, item_done(open_item, place), completed(last))
    assert [BOB, ANN] == run(item_done(first, place), completed(last, pay("ann", "f3", "c")))


def test_a_call_matches_only_one_repetition() -> None:
    """An equal call in the final output is another call."""
    assert [BOB, BOB] == run(item_done(pay()), completed(pay(id="f2", call_id="b"), pay(id="f3", call_id="c")))
    assert [BOB, BOB] == run(completed(pay(id=None, call_id=None), pay(id=None, call_id=None)))
    assert [BOB, ANN] == run(added(pay("", None, None), None), completed(pay(), pay("ann", "f2", "b")))


def test_a_reported_custom_call_is_not_repeated() -> None:
    """Its text is the same whether it is streamed, whole or empty."""
    for text in ("", 'say "hi"'):
        other = custom(text, id="new", call_id="new")
        piece = event("custom_tool_call_input.delta", item_id="ctc_1", delta=text)
        assert [f"f {json.dumps({'input': text})}"] == run(item_done(custom(text)), completed(other))
        assert [f"f {json.dumps({'input': text})}"] == run(
            added(custom()), piece, item_done(custom()), completed(other)
        )


@pytest.mark.parametrize("other", [pay("ann", "f2", "a"), pay("ann", "f", "b")])
@pytest.mark.parametrize("begun", [False, True])
def test_calls_with_colliding_ids_are_both_reported(other: Value, begun: bool) -> None:
    """Two calls that share one id are both reported once."""
    starts = [added(pay() | {"arguments": ""}), added(other | {"arguments": ""}, 1)] if begun else []
    pieces = [delta('{"to":', PIECE, "f", 0), delta('{"to":', PIECE, other["id"], 1)] if begun else []
    dones = [item_done(pay()), item_done(other, 1)]
    assert [BOB, ANN] == run(*starts, *pieces, *dones, completed())
    assert [BOB, ANN] == run(*starts, *dones, completed(pay(), other))
    assert [BOB, ANN] == run(item_done(pay()), completed(pay(), other))
    assert [BOB, ANN] == run(completed(pay(), other))
