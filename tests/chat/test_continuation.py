"""Requests that make a model continue the answer of another, and the new text of its answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamtools import chat
from streamtools.conversation import AnthropicMessages, Fallback, OpenAIChat, ScriptedModel
from streamtools.conversation.failover_rules import MIN_REPETITION, Continuation
from streamtools.conversation.models.prefill_fields import Prefill, prefill_of
from tests.chat.test_failover import ASK, LOST, lines, text_of, told
from tests.support.cases import together
from tests.support.chat_chunks import DONE, chunk
from tests.support.loopback import Loopback

WHOLE = 'One, two, three.\n\n~~~tool_call\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n~~~\n'


@together(
    ("model", "row"),
    [
        (OpenAIChat("m", base_url="http://127.0.0.1/v1", prefill="vllm"), "vllm"),
        (OpenAIChat("m", base_url="http://127.0.0.1/v1"), None),
        (OpenAIChat("gpt-5", api_key=""), None),
        (OpenAIChat("m", base_url="https://api.deepseek.com/beta"), "deepseek"),
        (OpenAIChat("m", base_url="https://api.deepseek.com"), None),
        (OpenAIChat("m", base_url="https://api.mistral.ai/v1"), "mistral"),
        (OpenAIChat("m", base_url="https://api.mistral.ai/v1", prefill=""), ""),
        (AnthropicMessages("claude-sonnet-4-5", api_key="", prefill="anthropic"), "anthropic"),
        (AnthropicMessages("claude-opus-4-6", api_key=""), None),
    ],
)
def test_models_that_support_a_prefill(model: Any, row: str | None) -> None:
    """The servers of the table, and no others."""
    assert model.prefill == row


async def test_the_request_of_a_prefill() -> None:
    """White space at the end is not sent, and is shown once."""
    async with Loopback([lines("\n\nthere"), chunk(finish="stop"), DONE]) as server:
        second = OpenAIChat("two", base_url=server.url, api_key="", prefill="vllm")
        events = await told(chat(Fallback(ScriptedModel([["Hello \n\n", LOST]]), second), ASK))
    assert b'{"role":"assistant","content":"Hello"}' in server.requests[0]
    assert b'"continue_final_message":true,"add_generation_prompt":false' in server.requests[0]
    assert text_of(events) == "Hello \n\nthere"

    model = AnthropicMessages("claude-sonnet-4-5", api_key="", prefill="anthropic")
    assert prefill_of(model, {"thinking": {"type": "enabled", "budget_tokens": 1024}}) is None
    assert prefill_of(model, {}) is not None
    with pytest.raises(ValueError, match="`prefill` must be"):
        OpenAIChat("m", prefill="unknown")


SHOWN = "The capital of France is Paris. It lies on the Sei"
REST = "ne, and has many bridges."
LONG = "it is so and so it is so and so "


@together(
    ("kind", "shown", "answer", "whole"),
    [
        ("continues immediately", SHOWN, REST, SHOWN + REST),
        ("repeats the end", SHOWN, SHOWN[-18:] + REST, SHOWN + REST),
        ("starts again", SHOWN, SHOWN + REST, SHOWN + REST),
        ("repeats too little", SHOWN, SHOWN[-15:] + REST, SHOWN + SHOWN[-15:] + REST),
        ("repeats half a word", SHOWN, SHOWN[-17:] + REST, SHOWN + SHOWN[-17:] + REST),
        ("a preamble", SHOWN, "Sure: " + SHOWN[-18:] + REST, SHOWN + "Sure: " + SHOWN[-18:] + REST),
        ("really repeats", LONG, LONG, LONG + LONG),
        ("ends in mid-repetition", SHOWN, SHOWN[:20], SHOWN + SHOWN[:20]),
        ("repeats only", SHOWN, SHOWN, SHOWN),
    ],
)
def test_an_instructed_continuation(kind: str, shown: str, answer: str, whole: str) -> None:
    """A certain repetition is removed. In doubt the text stays. Cuts change nothing."""
    for size in (1, 2, 5, len(answer)):
        assert shown + read_on(Continuation(shown, None), answer, size) == whole, kind


def read_on(continuation: Continuation, answer: str, size: int) -> str:
    pieces = [answer[at : at + size] for at in range(0, len(answer), size)]
    return "".join(map(continuation.feed, pieces)) + continuation.close()


words = st.text("ab \n", max_size=60)


@given(words, words, st.integers(1, 7), st.sampled_from([Prefill(), Prefill(echoes=True), None]))
@example("a" * 40, "a" * 60, 1, None)
def test_cuts_change_nothing(shown: str, answer: str, size: int, prefill: Prefill | None) -> None:
    """Each cut gives the same text: the answer after the longest removable repetition."""
    whole = read_on(Continuation(shown, prefill), answer, max(1, len(answer)))

    assert read_on(Continuation(shown, prefill), answer, size) == whole
    if prefill is None:
        longest = next((k for k in range(len(answer), 0, -1) if shown.endswith(answer[:k])), 0)
        found, before = answer[:longest], shown[: len(shown) - longest]
        starts = not (before[-1:].isalnum() and found[:1].isalnum())
        others = [k for k in range(MIN_REPETITION, longest) if found.endswith(found[:k])]
        sure = longest >= MIN_REPETITION and starts and not others and shown.find(found) == len(before)
        assert whole == (answer[longest:] if sure else answer)
    else:
        assert answer.endswith(whole)


@given(st.text("ab \n", min_size=1, max_size=60), words)
def test_prefilled_continuations(shown: str, rest: str) -> None:
    """One server continues without the white space at the end, and one repeats the whole text."""
    whole = shown + rest
    sent = shown.rstrip()

    assert shown + read_on(Continuation(shown, Prefill()), whole[len(sent) :], 3) == whole
    if sent:
        assert shown + read_on(Continuation(shown, Prefill(echoes=True)), whole, 3) == whole


@given(st.integers(0, len(WHOLE)), st.sampled_from([0, 16, 25]))
def test_no_character_is_lost(at: int, repeats: int) -> None:
    """With any cut, and any repetition of whole words, text may repeat but is never lost."""
    answer = WHOLE[max(0, at - repeats) :]
    read = WHOLE[:at] + read_on(Continuation(WHOLE[:at], None), answer, 4)

    assert read in (WHOLE, WHOLE[:at] + answer)
