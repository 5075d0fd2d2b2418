"""Tests of calls inside reasoning: rehearsed calls, or calls after a forgotten closing tag."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import Limits, Parser
from streamtools.events import Call, Thinking
from streamtools.parsing.dialects import DIALECTS
from streamtools.parsing.reasoning import CallRun
from streamtools.testing.laws import assert_chunk_invariant
from tests.support.reading import Brief, brief, call, error, read, thought, warning
from tests.support.ways_to_cut import usual_ways

f = call("f")
ALIKE = warning("call_in_reasoning")
TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]

FORMS = {
    "mistral_args": ("[THINK]", "[TOOL_CALLS]f[ARGS]{}", "[/THINK]", "</s>"),
    "qwen3_coder_xml": ("<think>", "<tool_call>\n<function=f>\n</function>\n</tool_call>", "</think>", "<|im_end|>"),
    "glm_xml": ("<think>", "<tool_call>f</tool_call>", "</think>", "<|user|>"),
    "kimi_k2": ("<think>", DIALECTS["kimi_k2"].write_call("f", {}), "</think>", "<|im_end|>"),
    "deepseek_dsml": (
        "<think>", DIALECTS["deepseek_dsml"].write_call("f", {}), "</think>", "<｜end▁of▁sentence｜>",
    ),
    "apertus_list": (
        "<|inner_prefix|>", DIALECTS["apertus_list"].write_call("f", {}), "<|inner_suffix|>", "<|assistant_end|>",
    ),
    "cohere_action_json": (
        "<|START_THINKING|>", DIALECTS["cohere_action_json"].write_call("f", {}), "<|END_THINKING|>",
        "<|END_OF_TURN_TOKEN|>",
    ),
    "kimi_k3_xtml": (
        "<|open|>think<|sep|>", DIALECTS["kimi_k3_xtml"].write_call("f", {}), "<|close|>think<|sep|>", "<|end_of_msg|>",
    ),
}  # fmt: skip
"""The opening tag of reasoning, a call, the closing tag, and the token that ends a message, by the dialect."""

EACH = pytest.mark.parametrize("dialect", FORMS)


def options(dialect: str, **others: Any) -> dict[str, Any]:
    return {"dialects": [dialect], "tools": TOOLS, **others}


@EACH
def test_the_text_after_the_last_call_decides(dialect: str) -> None:
    """At the end of the message the calls are real, otherwise they are reasoning."""
    begin, one, end, end_of_turn = FORMS[dialect]
    run = f"{one}\n{one}"
    rows: list[tuple[str, list[Brief]]] = [
        (f"{begin}So {one}", [thought("So "), f]),
        (f"{begin}So {one}\n", [thought("So "), f, "\n"]),
        (f"{begin}So {one}{end_of_turn}", [thought("So "), f]),
        (f"{begin}So {run}", [thought("So "), f, f]),
        (f"{begin}So {one}\n\n{end}Bye", [thought(f"So {one}\n"), ALIKE, "Bye"]),
        (f"{begin}So {one} or{end}Bye", [thought(f"So {one} or"), ALIKE, "Bye"]),
        (f"{begin}So {one}{end}Bye", [thought(f"So {one}"), ALIKE, "Bye"]),
        (f"{begin}So {run}{end}{one}", [thought(f"So {run}"), ALIKE, f]),
        (f"{begin}So {one} or {one}", [thought(f"So {one} or "), ALIKE, f]),
        (f"{begin}{one} a", [thought(f"{one} a"), ALIKE]),
    ]
    for text, expected in rows:
        found = [each for each in read(text, **options(dialect)) if each != "\n" or "\n" in expected]
        assert expected == found, text


@pytest.mark.parametrize(
    ("dialect", "answer", "end"),
    [
        ("cohere_action_json", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        ("cohere_action_json", "<|START_TEXT|>", "<|END_TEXT|>"),
        ("kimi_k3_xtml", "<|open|>response<|sep|>", "<|close|>response<|sep|><|close|>message<|sep|>"),
    ],
)
def test_the_beginning_of_the_answer_also_ends_reasoning(dialect: str, answer: str, end: str) -> None:
    begin, one, _, end_of_turn = FORMS[dialect]
    for text in (one, f"{one} or"):
        found = read(f"{begin}So {text}{answer}Bye{end}{end_of_turn}", **options(dialect))
        assert [thought(f"So {text}"), ALIKE, "Bye"] == found


def test_the_tags_that_end_a_message_of_kimi_follow_a_real_call() -> None:
    begin, one, _, end_of_turn = FORMS["kimi_k3_xtml"]
    for end in ("<|close|>message<|sep|>", f"<|close|>message<|sep|>{end_of_turn}"):
        assert [thought("So "), f] == read(f"{begin}So {one}{end}", **options("kimi_k3_xtml"))


@EACH
def test_a_message_that_ends_inside_a_call_is_truncated(dialect: str) -> None:
    begin, one, _, _ = FORMS[dialect]
    half = one[: len(one) // 2 if dialect != "mistral_args" else -1]
    found = read(f"{begin}So {one}\n{half}", **options(dialect))
    assert [thought("So "), f] == found[:2]
    assert error("truncated") == found[-1]


@EACH
def test_nothing_is_reported_until_it_is_decided(dialect: str) -> None:
    begin, one, end, _ = FORMS[dialect]
    parser = Parser(**options(dialect, call_deltas=True))
    parser.feed(begin + "So ")
    assert [] == parser.feed(one)
    assert [] == parser.feed("\n\n")
    assert not [each for each in parser.feed("x" + end) + parser.close() if isinstance(each, Call | Thinking)]
    assert [] == parser.calls
    assert [] == parser.errors


def test_line_feeds_of_the_template_before_a_run_are_hidden() -> None:
    """If the run is reasoning, they are reasoning too."""
    for dialect, count in (("qwen3_coder_xml", 2), ("deepseek_dsml", 2), ("glm_xml", 1), ("kimi_k2", 0)):
        begin, one, end, _ = FORMS[dialect]
        some = "\n" * count
        assert [thought("So\n"), f] == read(f"{begin}So\n{some}{one}", **options(dialect)), dialect
        assert [thought(f"So{some}{one}"), ALIKE] == read(f"{begin}So{some}{one}{end}", **options(dialect)), dialect


def test_a_closing_tag_inside_a_call_ends_the_reasoning() -> None:
    """In a JSON string, it is text."""
    for begin, half, end, dialect in [
        ("<think>", "<tool_call>\n<function=f>\n<parameter=a>\nx", "</think>", "qwen3_coder_xml"),
        ("<think>", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x", "</think>", "glm_xml"),
        ("[THINK]", '[TOOL_CALLS]f[ARGS]{"a":', "[/THINK]", "mistral_args"),
    ]:
        assert [thought(f"So {half}"), ALIKE, "Bye"] == read(f"{begin}So {half}{end}\nBye", **options(dialect)), dialect
        assert [thought("So "), error("truncated")] == read(f"{begin}So {half}", **options(dialect)), dialect
    text = '[THINK]So [TOOL_CALLS]f[ARGS]{"a":"[/THINK]"}'
    assert [thought("So "), call("f", a="[/THINK]")] == read(text, **options("mistral_args"))


@pytest.mark.parametrize(
    ("reasoning", "answer"),
    [
        ('[TOOL_CALLS]f[ARGS]{"a":"x', "Hello, it is 5."),
        ('[TOOL_CALLS]f[ARGS]{"a":"x', 'Hello [/THINK]\n\nthe "answer"[/THINK] is 5'),
        ('[TOOL_CALLS]f[ARGS]{"a":"[/THINK]"}[TOOL_CALLS]f[ARGS]{"a":["b', "Hello"),
        ('[TOOL_CALLS]f[ARGS]"x', "Hello"),
    ],
)
def test_a_closing_tag_in_an_incomplete_string_ends_the_reasoning(reasoning: str, answer: str) -> None:
    """Otherwise, the answer would be lost."""
    found = read(f"[THINK]{reasoning}[/THINK]\n{answer}", **options("mistral_args"))
    assert [thought(reasoning), ALIKE, answer] == found
    assert [thought(reasoning), ALIKE, f] == read(
        f"[THINK]{reasoning}[/THINK][TOOL_CALLS]f[ARGS]{{}}", **options("mistral_args")
    )


def test_a_line_feed_after_a_closing_tag_in_a_string_decides_nothing() -> None:
    """In a tilde fence, the text after it shows whether the string continues."""
    half = '~~~tool_call\n{"name":"f","arguments":{"a":"'
    for text, expected in [
        (f'{half}</think>\n&"}}}}\n~~~', [call("f", a="</think>\n&")]),
        (f"{half}</think>\n&", [thought(half), ALIKE, "&"]),
        (f"{half}</think>\n~~~ &", [thought(half), ALIKE, "~~~ &"]),
    ]:
        assert expected == read(text, dialects=["tilde_fence"], in_reasoning=True)


def test_a_complete_tag_at_the_end_is_a_truncated_call() -> None:
    """An incomplete tag is reasoning."""
    for tag, dialect in (("[TOOL_CALLS]", "mistral_args"), ("<tool_call>\n", "qwen3_coder_xml")):
        begin = FORMS[dialect][0]
        assert [thought("So "), error("truncated")] == read(f"{begin}So {tag}", **options(dialect)), dialect
        half = tag.strip()[:-1]
        assert [thought(f"So {half}")] == read(f"{begin}So {half}", **options(dialect)), dialect


def test_a_run_over_the_limit_is_reasoning() -> None:
    _, one, _, _ = FORMS["glm_xml"]
    text = f"<think>{one * 3}"

    assert [f, f, f] == read(text, **options("glm_xml", limits=Limits(call=3 * len(one))))
    assert [thought(one * 3), ALIKE] == read(text, **options("glm_xml", limits=Limits(call=3 * len(one) - 1)))


def test_no_call_of_a_run_with_a_gap_is_real() -> None:
    begin, one, _, _ = FORMS["qwen3_coder_xml"]
    parser = Parser(**options("qwen3_coder_xml"))
    parser.feed(begin + one[:-5])
    parser.lose()
    parser.feed(one[-5:])
    parser.close()

    assert [] == parser.calls


def test_rehearsed_calls_do_not_count_against_the_limit() -> None:
    begin, one, end, _ = FORMS["glm_xml"]
    text = f"{begin}{one}{one}{end}{one}"
    assert [thought(one * 2), ALIKE, f] == read(text, **options("glm_xml", limits=Limits(calls=1)))


@EACH
def test_a_token_that_ends_the_message_ends_the_run(dialect: str) -> None:
    """Unless the closing tag of the reasoning follows, because the token was rehearsed too."""
    begin, one, end, end_of_turn = FORMS[dialect]
    run = f"{one}{end_of_turn}"
    for text in ("x", "</x", "[x"):  # the text after the token decides, so the call is reported with it
        whole = f"{begin}So {run}{text}"
        events = assert_chunk_invariant(whole, usual_ways(whole), **options(dialect))
        assert [thought("So "), f, text] == brief(events)
    assert [thought(f"So {run}"), ALIKE, "Bye"] == read(f"{begin}So {run}{end}Bye", **options(dialect))


def test_a_tag_of_one_dialect_ends_the_run_of_another() -> None:
    assert [thought("So "), f] == read("<think>So <tool_call>f</tool_call><|im_end|>", dialects="auto", tools=TOOLS)


@pytest.mark.parametrize("verdict", [True, False])
def test_a_run_with_a_constant_verdict_is_caught(verdict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    read_run = CallRun.read

    def faulty(run: CallRun, text: str, ended: bool) -> bool | None:
        return None if read_run(run, text, ended) is None else verdict

    monkeypatch.setattr(CallRun, "read", faulty)
    with pytest.raises(AssertionError):
        test_the_text_after_the_last_call_decides("glm_xml")
