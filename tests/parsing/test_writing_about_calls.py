"""Tests of answers about calls, and of answers with code: they hold no calls."""

from __future__ import annotations

from textwrap import indent
from typing import Any

import pytest

from streamtools import parse
from streamtools.parsing.dialects import DIALECTS
from tests.support.cases import cases, together

TOOLS: list[dict[str, Any]] = [{"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}]

ABOUT = (
    "The `<tool_call>` tag wraps JSON, and `</tool_call>` ends it.",
    "Wrap it in <tool_call>...</tool_call>, please.",
    "Models of Qwen write <tool_call></tool_call> around it.",
    're.findall(r"<tool_call>(.*?)</tool_call>", text)',
    "The token [TOOL_CALLS] begins calls, as all know.",
    "[TOOL_CALLS], [ARGS] and [CALL_ID] are control tokens.",
    "[INST] Hi [/INST] is the older prompt.",
    "Llama writes <function=...>{...}</function> there.",
    "std::function<void(int)> f = [](int) {};\nauto g = std::function<int(int)>{};",
    "In F# it is x <| f, or x |> f, and in Elixir list |> Enum.map(f).",
    "functools.partial(f, 1), functools[0]",
    "#### Results: {a}\n\n### Result: {b}\n\nC#:{c}",
    "~~~text\n~~~tool_call is a fence\n~~~",
    "The <|python_tag|> token begins code.",
    "Kimi writes <|tool_call_begin|>, DeepSeek <｜tool▁calls▁begin｜>, MiniMax <minimax:tool_call>.",
    "The <|im_end|> and <|eot_id|> tokens, or </s>, end it.",
    "A <think> tag, and [THINK] too, opens reasoning.",
    "<invoke>it</invoke> and <function>it</function>",
    "<parameter=city>\nParis\n</parameter>\n</function>",
)
"""Texts of which nothing is hidden."""

QUOTED = (
    "So:\n\n```\n{call}\n```\n\nDone.",
    'So:\n\n```xml title="a call" {{1}}\n{call}\n```',
    "````markdown\n```xml\n{call}\n```\n````\n",
    "So:\n\n```xml\n{call}",
    "1. So\n\n   ```\n{inner}\n   ```\n2. Done",
    "- ```xml\n{inner}\n  ```\n",
    "He wrote:\n\n{quote}\n\nDone.",
    "- So:\n{inner_quote}\n- Done",
    "> ```\n{quote}\n> ```\n",
    "Write `{line}` there.",
    "| so | ``{line}`` |\n",
    "> {line}\n",
)


@together("text", ABOUT)
def test_answers_about_calls_are_shown(text: str) -> None:
    """At each cut."""
    for size in (1, 2, 3, 7, len(text)):
        result = parse([text[at : at + size] for at in range(0, len(text), size)], tools=TOOLS)
        assert (text, "", [], []) == (result.content, result.reasoning, result.calls, result.errors)


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.deep)])
def test_a_quoted_call_is_shown(share: int) -> None:
    """In each kind of code, in quotes, and in each dialect."""
    with cases() as case:
        for number, dialect in enumerate(DIALECTS.values()):
            call = dialect.write_call("get_weather", {"city": "Paris"})
            for way in QUOTED[number % share :: share]:
                if not {*"`~"} & {*call}:
                    inner = {"inner": indent(call, "   "), "inner_quote": indent(call, "  > ", lambda line: True)}
                    line = call.replace("\n", " ")
                    text = way.format(call=call, quote=indent(call, "> ", lambda line: True), line=line, **inner)
                    with case(dialect.id, way):
                        for size in (3, len(text)):
                            result = parse([text[at : at + size] for at in range(0, len(text), size)], tools=TOOLS)
                            assert (text, [], []) == (result.content, result.calls, result.errors)
