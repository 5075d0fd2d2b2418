"""Provider streams that are easily misread, whole and at every cut."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import httpx
import pytest

from streamtools import RunnerOptions, ToolStream, sources
from streamtools import events as kinds
from streamtools.errors import Code
from streamtools.machine import StreamMachine
from streamtools.sources import FrameAdapter
from streamtools.sources.wire_formats.gemini import Gemini
from streamtools.sources.wire_formats.openai import ChatCompletions
from streamtools.sources.wire_formats.responses import Responses
from streamtools.stream.extraction import extract_tool_calls
from tests.machine.test_machine import story
from tests.sources.adapters import assert_same_at_every_cut, read
from tests.support.bodies import Pieces
from tests.support.cases import together
from tests.support.chat_chunks import DONE, chunk, sse, stop

STOP = kinds.ProviderCompleted(finish_reason="stop", raw_finish_reason="STOP")


def event(kind: str, **fields: Any) -> bytes:
    return sse({"type": f"response.{kind}", **fields}, f"response.{kind}")


def custom(id: str, status: str = "completed", name: str = "x_keyword_search", **more: Any) -> dict[str, Any]:
    item = {"type": "custom_tool_call", "id": f"ctc_1_{id}", "call_id": id, "name": name, "status": status}
    return item | {"input": '{"query":"q"}'} | more


def asked(id: str, **more: Any) -> bytes:
    """Return the events of one custom call."""
    place: dict[str, Any] = {"item_id": f"ctc_1_{id}", "output_index": 0}
    return (
        event("output_item.added", output_index=0, item=custom(id, "in_progress", **more, input=""))
        + event("custom_tool_call_input.delta", **place, delta='{"query":"q"}')
        + event("custom_tool_call_input.done", **place, input='{"query":"q"}')
        + event("output_item.done", output_index=0, item=custom(id, **more))
    )


def answer(text: str = "Yes", **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part], **more}


def completed(*output: dict[str, Any]) -> bytes:
    response = {"id": "resp_1", "model": "grok-4", "status": "completed", "output": list(output)}
    return event("output_text.delta", item_id="msg_1", output_index=1, delta="Yes") * (len(output) > 1) + event(
        "completed", response=response
    )


def content(*parts: dict[str, Any], finish: str | None = None) -> bytes:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return sse({"candidates": [candidate | ({"finishReason": finish} if finish else {})]})


class Stream(NamedTuple):
    """A stream, its adapter, and its source events other than raw data."""

    make: Callable[[], FrameAdapter]
    body: bytes
    expected: list[kinds.SourceEvent]


END = kinds.ProviderCompleted("Yes", None, "stop", "completed")
SEARCH = kinds.NativeToolCall("x_keyword_search", '{"query":"q"}', "1", "ctc_1_xs_call_1", provider_executed=True)
CODE = {"executableCode": {"language": "PYTHON", "code": "1"}}
RESULT = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
USAGE = kinds.Usage(input=7, output=3, total=10)
COUNTS = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}

COHERE = sse({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "a"}}}}, "content-delta")

STREAMS: dict[str, Stream] = {
    "xAI's own search": Stream(
        Responses,
        asked("xs_call_1") + completed(custom("xs_call_1"), answer()),
        [SEARCH, kinds.SourceRaw(custom("xs_call_1"), "responses"), kinds.TextDelta("Yes"), END],
    ),
    "Groq's usage": Stream(
        ChatCompletions,
        chunk({"role": "assistant", "content": "a"}, x_groq={"id": "req_1"})
        + chunk(finish="stop", x_groq={"id": "req_1", "usage": COUNTS})
        + DONE,
        [kinds.TextDelta("a"), kinds.SourceUsage(USAGE), stop(usage=USAGE)],
    ),
    "Cohere's, for chat completions": Stream(
        ChatCompletions,
        COHERE,
        [
            kinds.SourceRaw({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "a"}}}}),
            kinds.SourceError(
                "`sources.openai` understood nothing in the stream: the content type is unknown, and the stream "
                "begins with `content-delta`; `sources.cohere` reads this format",
                cause="unknown_format",
            ),
        ],
    ),
    "Gemini's stop before the code that it runs": Stream(
        Gemini,
        content({"text": "I count."}, finish="STOP")
        + content(CODE)
        + content(RESULT)
        + content({"text": "One."}, finish="STOP"),
        [
            kinds.TextDelta("I count."),
            kinds.NativeToolCall("code_execution", CODE["executableCode"], "1", None, True, own={"gemini": CODE}),
            kinds.SourceRaw(RESULT, "gemini"),
            kinds.TextDelta("One."),
            STOP,
        ],
    ),
}


@together("stream", STREAMS.values(), ids=STREAMS)
def test_streams_give_the_same_events_at_every_cut(stream: Stream) -> None:
    """Each gives these events, however it is cut."""
    assert_same_at_every_cut(stream.make, stream.body, stream.expected)


def told(make: Callable[[], FrameAdapter], *chunks: bytes) -> list[kinds.UIEvent]:
    """Return the UI events of a run over a stream."""
    machine = StreamMachine(execute="never")
    return [out for event in read(make, *chunks) for out in machine.feed(event)] + machine.close()


def test_a_custom_call_before_an_answer_was_run_by_the_provider() -> None:
    """The provider has run the call. It is not run again and is in no history."""
    ended = told(Responses, asked("c1") + completed(custom("c1"), answer()))
    asks = told(Responses, asked("c1") + completed(custom("c1")))
    remarks = told(Responses, asked("c1") + completed(custom("c1"), answer(phase="commentary")))

    assert [Code.SUPERSEDED] == [each.code for each in ended if isinstance(each, kinds.Error)]
    assert isinstance(ended[-1], kinds.Done)
    assert [] == ended[-1].pending
    for events in (asks, remarks):
        (call,) = [each.call for each in events if isinstance(each, kinds.Call)]
        assert {"input": '{"query":"q"}'} == call.arguments
        assert isinstance(events[-1], kinds.Done)
        assert [call] == events[-1].pending


async def test_a_history_omits_the_calls_of_the_provider() -> None:
    """Calls that the provider has run need no result."""
    chunks = [asked("c1"), completed(custom("c1"), answer())]
    events = ToolStream(sources.responses(chunks), runner=RunnerOptions(execute="never"))
    await events
    assert [{"role": "assistant", "content": "Yes"}] == events.result.messages("openai")


@pytest.mark.parametrize("native", ["length", "max_output_tokens", "MAX_TOKENS"])
def test_a_call_that_was_truncated_at_a_hidden_limit_does_not_run(native: str) -> None:
    """Its arguments have not begun, and a call without arguments would run."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}
    choice = {
        "index": 0,
        "delta": {"tool_calls": [call]},
        "finish_reason": "tool_calls",
        "native_finish_reason": native,
    }
    events = told(ChatCompletions, sse({"choices": [choice]}) + DONE)

    assert [Code.TRUNCATED] == [each.code for each in events if isinstance(each, kinds.Error)]
    assert "done truncated: length" in story(*read(ChatCompletions, sse({"choices": [choice]}) + DONE))[-1]


def test_a_connection_that_breaks_after_an_intermediate_stop_is_an_interruption() -> None:
    """Text before executed code does not end the answer, even if the code has a finish reason."""
    for start in (
        content({"text": "a"}, finish="STOP") + content(CODE),
        content(CODE, finish="STOP"),
        content(CODE) + content(RESULT),
    ):
        adapter = Gemini()
        adapter.feed(start)
        assert not adapter.ended
        (lost,) = [each for each in adapter.close("reset") if isinstance(each, kinds.SourceError)]
        assert lost.code is Code.STREAM_INTERRUPTED


# A stream of another format.

GENERATE = b'{"model":"m","response":"a","done":false}\n{"model":"m","response":"","done":true,"done_reason":"stop"}\n'
CHAT = b'{"message":{"role":"assistant","content":"a"},"done":false}\n'
ANTHROPIC = sse({"type": "message_start", "message": {"id": "m"}}, "message_start")
FOREIGN: dict[str, tuple[str, bytes, str]] = {
    "Ollama's /api/generate": ("ollama", GENERATE, "the fields model, response, done; no source reads Ollama's"),
    "Ollama's lines": ("gemini", CHAT * 2, "data that is not JSON; `sources.detect` chooses a source"),
    "Anthropic's": ("openai", ANTHROPIC + DONE, "`message_start`; `sources.anthropic` reads this format"),
    "chat completions": ("anthropic", chunk({"content": "a"}) + DONE, "choices; `sources.openai` reads this format"),
    "a page": ("openai", b"<!DOCTYPE html>\n<p>\n\nBad gateway</p>\n", "the line `<!DOCTYPE html>`"),
    "one of a kind": ("openai", sse({"kind": 1, "what": 2}) + DONE, "the fields kind, what; `sources.detect`"),
}


@pytest.mark.parametrize(("name", "body", "words"), FOREIGN.values(), ids=FOREIGN)
async def test_a_stream_of_another_format_fails(name: str, body: bytes, words: str) -> None:
    """The error names the declared type, the first event and the right source. The run fails."""
    declared = "text/html" if body.startswith(b"<") else "text/event-stream"
    response = httpx.Response(200, headers={"content-type": declared}, stream=Pieces(body[:7], body[7:]))
    async with ToolStream(sources.Source(response, sources.adapter(name))) as stream:
        events = [event async for event in stream]

    (error,) = [each for each in events if isinstance(each, kinds.Error)]
    assert isinstance(events[-1], kinds.Done)
    assert events[-1].reason == "failed"
    assert f"`sources.{name}` understood nothing in the stream: the content type is {declared}" in error.message
    assert words in error.message
    assert_same_at_every_cut(partial(sources.adapter, name), body, read(partial(sources.adapter, name), body))


def test_one_understood_event_proves_the_format() -> None:
    """One event is enough, and so is an empty chunk."""
    for stream in (chunk({"content": "a"}), chunk({"role": "assistant"}), sse({"choices": []})):
        assert isinstance(read(ChatCompletions, COHERE + stream + DONE)[-1], kinds.ProviderCompleted)
    assert [] == read(ChatCompletions, b": PROCESSING\n\n")


# Finished messages.


def test_a_finished_message_with_a_custom_call() -> None:
    """Its input is text and becomes an argument."""
    call = {"id": "c", "type": "custom", "custom": {"name": "patch", "input": "*** Begin"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    (found,) = extract_tool_calls({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).calls
    assert ("patch", {"input": "*** Begin"}, "c") == (found.name, found.arguments, found.provider_id)


def test_a_finished_message_with_an_empty_function_call() -> None:
    """Some servers send one with every text."""
    message = {"role": "assistant", "content": "Yes", "function_call": {"name": "", "arguments": ""}}
    assert ([], []) == extract_tool_calls({"choices": [{"message": message, "finish_reason": "stop"}]})


# What the provider calls its answer, and what it has cost.


@pytest.mark.parametrize(("cost", "expected"), [(0.00125, 0.00125), ({"total_cost": 2}, 2.0), ("much", None)])
def test_the_cost_of_a_response_is_reported(cost: Any, expected: float | None) -> None:
    """OpenRouter sends it with the tokens, and Perplexity in parts."""
    usage = kinds.SourceUsage(kinds.Usage(input=7, output=3, total=10, cost=expected))
    stream = chunk({"content": "a"}, "stop", usage=COUNTS | {"cost": cost}) + DONE
    assert_same_at_every_cut(ChatCompletions, stream, [kinds.TextDelta("a"), usage, stop(usage=usage.usage)])
    assert kinds.Usage(input=1, cost=0.5) + kinds.Usage(input=1, cost=0.25) == kinds.Usage(input=2, cost=0.75)
