"""Chat completion chunks: each way in which servers that speak like OpenAI differ, whole and at every cut.

The streams are written by hand after what the providers named beside them send; ids, times and models are left out.
"""

from __future__ import annotations

from typing import Any

from streamtools.errors import Code
from streamtools.events import (
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    TextDelta,
    Usage,
)
from streamtools.limits import Limits
from tests.sources.adapters import forwarded, texts, thoughts
from tests.support.chat_chunks import DONE, chunk, read, sse, stop
from tests.support.cuts import usual_cuts

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def came(text: str, *fields: str) -> ReasoningDelta:
    """Return the first piece of reasoning that came in a field."""
    return ReasoningDelta(text, own={"openai": dict.fromkeys(fields)})


def details(*entries: dict[str, Any]) -> ReasoningDelta:
    """Return the event with the reasoning details of a turn."""
    return ReasoningDelta("", own={"openai": {"reasoning_details": [*entries]}})


def one(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return the value of a chunk, as it passes."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


STREAMS: dict[str, tuple[bytes, list[SourceEvent]]] = {
    # OpenAI: a role first, usage null until a chunk without choices has it, obfuscation, then the sentinel.
    "OpenAI": (
        chunk({"role": "assistant", "content": "", "refusal": None}, usage=None, obfuscation="x")
        + chunk({"content": "Par"}, usage=None)
        + chunk({"content": "is"}, usage=None)
        + chunk(finish="stop", usage=None)
        + sse(
            {
                "choices": [],
                "usage": USAGE
                | {
                    "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 2, "audio_tokens": 0},
                    "completion_tokens_details": {"reasoning_tokens": 1},
                },
            }
        )
        + DONE,
        [
            *texts("Par", "is"),
            SourceUsage(Usage(input=7, output=3, total=10, cache_read=5, cache_write=2, reasoning=1)),
            stop(usage=Usage(input=7, output=3, total=10, cache_read=5, cache_write=2, reasoning=1)),
        ],
    ),
    # OpenAI with moderation, Azure with its content filter: chunks without choices, and a choice without a delta.
    "chunks that hold no answer": (
        sse({"choices": [], "prompt_filter_results": []})
        + chunk({"content": "a"})
        + sse({"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]})
        + sse({"choices": [], "usage": None, "moderation": {}})
        + chunk(finish="content_filter")
        + DONE,
        [
            SourceRaw({"choices": [], "prompt_filter_results": []}),
            TextDelta("a"),
            SourceRaw({"choices": [{"index": 0, "finish_reason": None, "content_filter_offsets": {}}]}),
            SourceRaw({"choices": [], "usage": None, "moderation": {}}),
            stop("content_filter"),
        ],
    ),
    # OpenAI: what the model says when it refuses is what the reader gets to see.
    "a refusal": (chunk({"refusal": "No."}) + chunk(finish="stop") + DONE, [TextDelta("No."), stop()]),
    # DeepSeek, xAI, Alibaba, older vLLM; usage on the last chunk that has a choice.
    "reasoning_content": (
        chunk({"role": "assistant", "content": None, "reasoning_content": ""})
        + chunk({"content": None, "reasoning_content": "Hm"})
        + chunk({"content": "Hi", "reasoning_content": None})
        + chunk({"content": "", "reasoning_content": None}, "stop", usage=USAGE)
        + DONE,
        [
            came("Hm", "reasoning_content"),
            TextDelta("Hi"),
            SourceUsage(Usage(input=7, output=3, total=10)),
            stop(usage=Usage(input=7, output=3, total=10)),
        ],
    ),
    # OpenRouter says it twice, in `reasoning` and in its details; Groq names a channel; newer vLLM sends both names.
    "reasoning": (
        chunk({"content": "", "reasoning": "We", "reasoning_details": [{"type": "reasoning.text", "text": "We"}]})
        + chunk({"reasoning": " see", "channel": "analysis"})
        + chunk({"reasoning": "!", "reasoning_content": "!"})
        + chunk({"reasoning": "", "content": "Yes"}, "stop")
        + DONE,
        [
            came("We", "reasoning"),
            ReasoningDelta(" see"),
            came("!", "reasoning_content"),
            TextDelta("Yes"),
            details({"type": "reasoning.text", "text": "We"}),
            stop(),
        ],
    ),
    # OpenRouter: the details repeat the text, and hold what goes back with the next request: a signature (Anthropic) at
    # the end of a block, or a block that is encrypted (OpenAI, Gemini).
    "reasoning_details": (
        chunk({"reasoning": "We", "reasoning_details": [{"type": "reasoning.text", "text": "We", "index": 0}]})
        + chunk({"reasoning_details": [{"type": "reasoning.text", "signature": "s", "id": None, "index": 0}]})
        + chunk({"reasoning": None, "reasoning_details": [{"type": "reasoning.summary", "summary": "Sum"}]})
        + chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "d", "id": "rs_1", "index": 1}]})
        + chunk({"reasoning_details": {"type": "reasoning.text", "text": "!", "signature": "t", "id": "rs_2"}})
        + chunk({"reasoning_details": [5, {"type": "other"}, {"type": "reasoning.text", "text": 5}]}, "stop")
        + DONE,
        [
            came("We", "reasoning"),
            ReasoningDelta("", "s"),
            ReasoningDelta("Sum"),
            ReasoningDelta("", "d", "rs_1", redacted=True),
            ReasoningDelta("!"),
            ReasoningDelta("", "t", "rs_2"),
            *forwarded(5, {"type": "other"}),
            details(
                {"type": "reasoning.text", "text": "We", "index": 0, "signature": "s"},
                {"type": "reasoning.summary", "summary": "Sum"},
                {"type": "reasoning.encrypted", "data": "d", "id": "rs_1", "index": 1},
                {"type": "reasoning.text", "text": "!", "signature": "t", "id": "rs_2"},
                {"type": "other"},
                {"type": "reasoning.text", "text": 5},
            ),
            stop(),
        ],
    ),
    # Mistral's reasoning models: content is a list of parts.
    "content in parts": (
        chunk({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]})
        + chunk({"content": [{"type": "text", "text": "Hi"}, "!", {"type": "reference", "reference_ids": [1]}]})
        + chunk({"content": ""}, "model_length")
        + DONE,
        [
            came("Hm", "content"),
            *texts("Hi", "!"),
            SourceRaw({"type": "reference", "reference_ids": [1]}),
            ProviderCompleted(finish_reason="length", raw_finish_reason="model_length"),
        ],
    ),
    # vLLM with continuous usage: each chunk has it, and only what changes is told.
    "usage on every chunk": (
        chunk({"content": "a"}, usage=USAGE)
        + chunk({"content": "b"}, usage=USAGE)
        + chunk(finish="length", usage=USAGE | {"total_tokens": 11})
        + DONE,
        [
            TextDelta("a"),
            SourceUsage(Usage(input=7, output=3, total=10)),
            TextDelta("b"),
            SourceUsage(Usage(input=7, output=3, total=11)),
            stop("length", Usage(input=7, output=3, total=11)),
        ],
    ),
    # xAI counts reasoning beside the completion tokens; the total tells.
    "reasoning tokens that the output leaves out": (
        chunk({"content": "a"}, "stop")
        + sse(
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 307,
                    "completion_tokens": 26,
                    "total_tokens": 560,
                    "completion_tokens_details": {"reasoning_tokens": 227},
                },
            }
        )
        + DONE,
        [
            TextDelta("a"),
            SourceUsage(Usage(input=307, output=253, total=560, reasoning=227)),
            stop(usage=Usage(input=307, output=253, total=560, reasoning=227)),
        ],
    ),
    # xAI: no finish_reason and no logprobs where there are none; others leave out the index, or the delta at the end.
    "fields that are missing": (
        sse({"choices": [{"delta": {"content": "a"}}]})
        + sse({"choices": [{"index": None, "delta": {"content": "b"}}]})
        + sse({"choices": [{"finish_reason": "stop"}]})
        + DONE,
        [TextDelta("a"), TextDelta("b"), stop()],
    ),
    # OpenRouter sends the finish reason twice; others send "" until the last chunk.
    "finish reasons that come again, or empty": (
        chunk({"content": "a"}, "") + chunk({"content": "b"}, "length") + chunk({"content": "c"}, "stop") + DONE,
        [TextDelta("a"), TextDelta("b"), TextDelta("c"), stop("length")],
    ),
    # OpenRouter: the error is in an ordinary chunk with choices and usage, and [DONE] follows.
    "an error in a chunk": (
        chunk({"content": "a"}, "length")
        + chunk({"content": "b"}, error={"code": 400, "message": "Token limit reached"}, usage=USAGE)
        + DONE,
        [
            *texts("a", "b"),
            SourceUsage(Usage(input=7, output=3, total=10)),
            SourceError("Token limit reached", status=400, cause="400"),
        ],
    ),
    # Groq: a named event, and no [DONE].
    "an error event": (
        chunk({"content": "a"})
        + sse(
            {
                "error": {
                    "message": "Tool call validation failed",
                    "type": "invalid_request_error",
                    "code": "tool_use_failed",
                    "failed_generation": '{"name": "secret"}',
                    "status_code": 400,
                }
            },
            "error",
        ),
        [
            TextDelta("a"),
            SourceError(
                "Tool call validation failed",
                status=400,
                cause="invalid_request_error tool_use_failed",
                failed_generation='{"name": "secret"}',
            ),
        ],
    ),
    # vLLM: the object is the error.
    "an object that is an error": (
        sse({"object": "error", "message": "Out of memory", "type": "InternalServerError", "code": 500}) + DONE,
        [SourceError("Out of memory", status=500, cause="InternalServerError 500")],
    ),
    # Gateways in front of other providers.
    "an error in a list": (
        sse([{"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}]) + DONE,
        [SourceError("Overloaded", status=503, cause="503")],
    ),
    "a status that is a text": (
        sse({"error": {"code": "429", "message": "Slow down"}}),
        [SourceError("Slow down", status=429, cause="429")],
    ),
    "an error that is a text": (sse({"error": "model not found"}) + DONE, [SourceError("model not found")]),
    "an error event that is no JSON": (sse("upstream timed out", "error"), [SourceError("upstream timed out")]),
    "errors that are none": (
        chunk({"content": "a"}, error=None) + chunk({"content": "b"}, "stop", error={}) + DONE,
        [TextDelta("a"), TextDelta("b"), stop()],
    ),
    # The sentinel is what begins with it, as OpenAI's own client has it; without a reason it is a stop.
    "[DONE] without a finish reason": (
        chunk({"content": "a"}) + b"data: [DONE] \n\n",
        [TextDelta("a"), ProviderCompleted(finish_reason="stop")],
    ),
    "no [DONE], but a finish reason, and text after it": (
        chunk({"content": "a"}, "stop") + chunk({"content": "b"}),
        [TextDelta("a"), TextDelta("b"), stop()],
    ),
    "a second choice passes as it comes": (
        chunk({"content": "a"}) + chunk({"content": "b"}, "length", index=1) + chunk(finish="stop") + DONE,
        [
            TextDelta("a"),
            SourceRaw({"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "length"}]}),
            stop(),
        ],
    ),
    # Audio models, search models with their sources, image models, Gemini's signature of a text: nobody's text is lost.
    "what is not text passes as it comes": (
        chunk({"audio": {"id": "a1", "transcript": "Hi"}})
        + chunk({"executed_tools": [{"type": "search", "output": "found"}]})
        + chunk({"content": "a", "annotations": [{"type": "url_citation"}]})
        + chunk({"images": [{"type": "image_url"}]})
        + chunk({"extra_content": {"google": {"thought_signature": "s"}}}, "stop")
        + DONE,
        [
            SourceRaw(one({"audio": {"id": "a1", "transcript": "Hi"}})),
            SourceRaw(one({"executed_tools": [{"type": "search", "output": "found"}]})),
            TextDelta("a"),
            SourceRaw(one({"content": "a", "annotations": [{"type": "url_citation"}]})),
            SourceRaw(one({"images": [{"type": "image_url"}]})),
            SourceRaw(one({"extra_content": {"google": {"thought_signature": "s"}}}, "stop")),
            stop(),
        ],
    ),
    # Perplexity repeats its sources with each chunk.
    "citations pass once": (
        chunk({"content": "a"}, citations=["u"])
        + chunk({"content": "b"}, citations=["u"])
        + chunk({"content": "c"}, "stop", citations=["u", "v"])
        + DONE,
        [
            TextDelta("a"),
            SourceRaw(one({"content": "a"}) | {"citations": ["u"]}),
            *texts("b", "c"),
            SourceRaw(one({"content": "c"}, "stop") | {"citations": ["u", "v"]}),
            stop(),
        ],
    ),
    "log probabilities and obfuscation are dropped": (
        sse({"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [{"token": "a"}]}}], "obfuscation": "x"})
        + chunk(finish="stop")
        + DONE,
        [TextDelta("a"), stop()],
    ),
    # Servers that do not stream what they were asked to; Perplexity sends the message so far beside each delta.
    "a message in place of a delta": (
        sse({"choices": [{"message": {"content": "a", "reasoning": "b"}, "finish_reason": "stop"}]}) + DONE,
        [came("b", "reasoning"), TextDelta("a"), stop()],
    ),
    "a message beside a delta": (
        sse({"choices": [{"message": {"content": "ab"}, "delta": {"content": "b"}, "finish_reason": "stop"}]}) + DONE,
        [TextDelta("b"), stop()],
    ),
    "completions without chat": (
        sse({"choices": [{"text": "a"}]}) + sse({"choices": [{"text": "b", "finish_reason": "stop"}]}) + DONE,
        [TextDelta("a"), TextDelta("b"), stop()],
    ),
    # One odd member costs itself, and is not lost.
    "members of an odd shape": (
        sse({"choices": [{"delta": 5, "finish_reason": "stop"}], "usage": USAGE})
        + sse({"choices": {"delta": {}}, "usage": USAGE | {"total_tokens": 11}})
        + sse({"choices": [5, {"delta": {"content": "a"}, "message": "b"}]})
        + DONE,
        [
            SourceUsage(Usage(input=7, output=3, total=10)),
            SourceRaw({"choices": [{"delta": 5, "finish_reason": "stop"}], "usage": USAGE}),
            SourceUsage(Usage(input=7, output=3, total=11)),
            SourceRaw({"choices": {"delta": {}}, "usage": USAGE | {"total_tokens": 11}}),
            TextDelta("a"),
            SourceRaw({"choices": [5, {"delta": {"content": "a"}, "message": "b"}]}),
            stop(usage=Usage(input=7, output=3, total=11)),
        ],
    ),
    "an error beside members of an odd shape": (sse({"choices": "none", "error": "no"}) + DONE, [SourceError("no")]),
    "a finish reason of an odd shape": (
        sse({"choices": [{"delta": {}, "finish_reason": ["stop"]}]}) + DONE,
        [ProviderCompleted(finish_reason="other", raw_finish_reason="unknown")],
    ),
    "unknown objects": (
        sse({"x_request": 1}) + sse([1]) + sse("null") + sse({"choices": "none"}) + chunk(finish="stop") + DONE,
        [SourceRaw({"x_request": 1}), SourceRaw([1]), SourceRaw(None), SourceRaw({"choices": "none"}), stop()],
    ),
    "usage that is none": (
        sse({"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": True}}) + DONE,
        [
            SourceRaw({"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": True}}),
            ProviderCompleted(finish_reason="stop"),
        ],
    ),
    "leaves of an odd type cost themselves": (
        sse({"choices": [{"delta": {"content": 5, "reasoning": 6}, "finish_reason": 7}], "usage": 8, "error": 0})
        + DONE,
        [SourceRaw(5), ProviderCompleted(finish_reason="other", raw_finish_reason="7")],
    ),
    # A server that streams token by token may cut a character in two.
    "a pair in two deltas": (
        sse(r'{"choices":[{"delta":{"content":"a\ud83d"}}]}')
        + sse(r'{"choices":[{"delta":{"content":"","reasoning":"b\ud83d"}}]}')
        + sse(r'{"choices":[{"delta":{"content":"\ude00c"}}]}')
        + sse(r'{"choices":[{"delta":{"reasoning":"\ude01"}}]}')
        + chunk({"content": "d", "reasoning": "e"}, "stop")
        + DONE,
        [TextDelta("a"), came("b", "reasoning"), TextDelta("😀c"), *thoughts("😁", "e"), TextDelta("d"), stop()],
    ),
    "halves that stay alone": (
        sse(r'{"choices":[{"delta":{"content":"\ude00a\ud83d"}}]}')
        + chunk({"content": "b"})
        + sse(r'{"choices":[{"delta":{"content":"\ud83d","reasoning":"\ud83d"}}]}')
        + chunk(finish="stop")
        + DONE,
        [TextDelta("\ufffda"), TextDelta("\ufffdb"), ReasoningDelta("\ufffd"), TextDelta("\ufffd"), stop()],
    ),
    # JSON that is none, and that servers send all the same.
    "infinities, raw tabs and bytes that are no UTF-8": (
        sse('{"choices":[{"delta":{"content":"a"},"logprobs":-Infinity}]}')
        + sse('{"choices":[{"delta":{"content":"b\tc"}}]}')
        + b'data: {"choices":[{"delta":{"content":"d\xff"}}]}\n\n'
        + DONE,
        [TextDelta("a"), TextDelta("b\tc"), TextDelta("d\ufffd"), ProviderCompleted(finish_reason="stop")],
    ),
}


def test_a_frame_that_cannot_be_decoded_is_a_warning() -> None:
    """The stream continues after it. The warning contains the start of the frame."""
    long = "{" + "x" * 500
    first, second, third, *rest = read(sse('{"choices":[{"del'), sse(long), chunk({"content": "a"}), DONE)
    assert isinstance(first, SourceWarning)
    assert (first.code, first.raw) == (Code.BAD_FRAME, '{"choices":[{"del')
    assert isinstance(second, SourceWarning)
    assert second.raw == long[:199] + "…"
    assert [TextDelta("a"), ProviderCompleted(finish_reason="stop")] == [third, *rest]


def test_a_frame_over_the_limit_is_skipped() -> None:
    """Its bytes are counted, and the stream continues. After an error, nothing is counted."""
    limits = Limits(frame=100)
    stream = sse({"x": "y" * 200}) + sse({"error": "no"}) + sse({"x": "y" * 200})
    expected = [
        SourceWarning(Code.SKIPPED, "an event of 214 bytes is over the limit of 100; it was skipped", count=214),
        SourceError("no"),
    ]
    for chunks in usual_cuts(stream):
        assert expected == read(*chunks, limits=limits)


def test_error_messages_are_bounded_and_on_one_line() -> None:
    """A provider that echoes the prompt, or control characters, does not get them shown."""
    (error,) = read(sse({"error": {"message": "a\r\n\u2028\x1b[31mb" + "c" * 1000, "type": "d" * 1000}}))
    assert isinstance(error, SourceError)
    assert error.message == "a    [31mb" + "c" * 489 + "…"
    assert error.cause is None


def test_errors_contain_no_keys_and_logs_no_sentences() -> None:
    """A key that the provider repeats is replaced. Only codes are logged."""
    told = {
        "message": "Incorrect API key provided: sk-proj-abc*****xyz.",
        "type": "auth sk-abcdefghij",
        "code": "no_key",
    }
    (error,) = read(sse({"error": told}))
    assert isinstance(error, SourceError)
    assert ("Incorrect API key provided: …", "no_key") == (error.message, error.cause)


def test_an_error_that_nests_too_deep_has_no_message() -> None:
    """The search for words ends."""
    value: Any = "deep"
    for _ in range(20):
        value = {"error": value}
    assert [SourceError("the provider reported an error")] == read(sse(value))
