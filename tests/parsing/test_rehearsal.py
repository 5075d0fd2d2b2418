"""Calls inside reasoning: rehearsed, or a closing tag that the model forgot."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import Limits, Parser
from streamtools.events import Call, Thinking
from streamtools.parsing.dialects import DIALECTS
from tests.support.reading import Brief, call, error, read, thought, warning

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
}  # fmt: skip
"""The opening tag of reasoning, a call, the closing tag, and the token that ends a message, by the dialect."""

EACH = pytest.mark.parametrize("dialect", FORMS)


def options(dialect: str, **others: Any) -> dict[str, Any]:
    return {"dialects": [dialect], "tools": TOOLS, **others}


@EACH
def test_what_follows_the_last_call_decides(dialect: str) -> None:
    """The end of the message makes calls of all of them, anything else reasoning."""
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


@EACH
def test_a_call_that_is_cut(dialect: str) -> None:
    """The message ends in it: it is one that was cut off."""
    begin, one, _, _ = FORMS[dialect]
    half = one[: len(one) // 2 if dialect != "mistral_args" else -1]
    found = read(f"{begin}So {one}\n{half}", **options(dialect))
    assert [thought("So "), f] == found[:2]
    assert error("truncated") == found[-1]


@EACH
def test_nothing_is_reported_until_it_is_decided(dialect: str) -> None:
    """Not even that a call is being written; and the reasoning that follows has nothing to take back."""
    begin, one, end, _ = FORMS[dialect]
    parser = Parser(**options(dialect, call_deltas=True))
    parser.feed(begin + "So ")
    assert [] == parser.feed(one)
    assert [] == parser.feed("\n\n")
    assert not [each for each in parser.feed("x" + end) + parser.close() if isinstance(each, Call | Thinking)]
    assert [] == parser.calls
    assert [] == parser.errors


def test_line_feeds_before_a_run() -> None:
    """Those that the template puts before a call are no reasoning; where the call is one, they are."""
    for dialect, count in (("qwen3_coder_xml", 2), ("deepseek_dsml", 2), ("glm_xml", 1), ("kimi_k2", 0)):
        begin, one, end, _ = FORMS[dialect]
        some = "\n" * count
        assert [thought("So\n"), f] == read(f"{begin}So\n{some}{one}", **options(dialect)), dialect
        assert [thought(f"So{some}{one}"), ALIKE] == read(f"{begin}So{some}{one}{end}", **options(dialect)), dialect


def test_reasoning_that_ends_in_a_call() -> None:
    """One that was not written to its end does not swallow the answer; in a string of JSON the tag is text."""
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
def test_reasoning_that_ends_in_a_string(reasoning: str, answer: str) -> None:
    """A string that does not end, or in which the JSON breaks, was none: the answer must not be lost in it."""
    found = read(f"[THINK]{reasoning}[/THINK]\n{answer}", **options("mistral_args"))
    assert [thought(reasoning), ALIKE, answer] == found
    assert [thought(reasoning), ALIKE, f] == read(
        f"[THINK]{reasoning}[/THINK][TOOL_CALLS]f[ARGS]{{}}", **options("mistral_args")
    )


def test_a_complete_tag_at_the_end() -> None:
    """The message ends in a call; in the beginning of a tag it ends in a thought."""
    for tag, dialect in (("[TOOL_CALLS]", "mistral_args"), ("<tool_call>\n", "qwen3_coder_xml")):
        begin = FORMS[dialect][0]
        assert [thought("So "), error("truncated")] == read(f"{begin}So {tag}", **options(dialect)), dialect
        half = tag.strip()[:-1]
        assert [thought(f"So {half}")] == read(f"{begin}So {half}", **options(dialect)), dialect


def test_a_run_that_is_too_long_was_rehearsed() -> None:
    """The limit of a call bounds what waits."""
    _, one, _, _ = FORMS["glm_xml"]
    text = f"<think>{one * 3}"

    assert [f, f, f] == read(text, **options("glm_xml", limits=Limits(call=3 * len(one))))
    assert [thought(one * 3), ALIKE] == read(text, **options("glm_xml", limits=Limits(call=3 * len(one) - 1)))


def test_a_gap_in_a_run() -> None:
    """Where a part of the text is missing, nothing may be a call."""
    begin, one, _, _ = FORMS["qwen3_coder_xml"]
    parser = Parser(**options("qwen3_coder_xml"))
    parser.feed(begin + one[:-5])
    parser.lose()
    parser.feed(one[-5:])
    parser.close()

    assert [] == parser.calls


def test_calls_in_a_run_count_once() -> None:
    """What was rehearsed is not counted against the limit of calls."""
    begin, one, end, _ = FORMS["glm_xml"]
    text = f"{begin}{one}{one}{end}{one}"
    assert [thought(one * 2), ALIKE, f] == read(text, **options("glm_xml", limits=Limits(calls=1)))


def test_where_many_dialects_are_enabled() -> None:
    """The tags of one end the run of another."""
    assert [thought("So "), f] == read("<think>So <tool_call>f</tool_call><|im_end|>", dialects="auto", tools=TOOLS)
