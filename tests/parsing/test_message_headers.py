"""Tests of the dialects of messages with headers: Inkling and functionary."""

from __future__ import annotations

import pytest

from streamtools import parse
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, thought, warning

f = call("f")
f1 = call("f", a=1)
UNCLOSED = warning("missing_close")


@pytest.mark.parametrize(
    ("ends", "unclosed"),
    [
        pytest.param(3 * ("<|end_message|>",), [], id="each with its end"),
        pytest.param(
            (*2 * ("<|end_message|>",), "<|content_model_end_sampling|>"), [UNCLOSED], id="and that of the turn"
        ),
        pytest.param(("", "<|end_message|>", ""), [UNCLOSED], id="without an end"),
    ],
)
def test_inkling_messages_are_calls_text_or_reasoning(ends: tuple[str, ...], unclosed: list[Brief]) -> None:
    text = (
        f"<|message_model|><|content_thinking|>so{ends[0]}<|message_model|><|content_text|>Hi{ends[1]}"
        f'<|message_model|>f<|content_invoke_tool_json|>{{"name":"f","args":{{"a":1}}}}{ends[2]}'
    )
    assert [thought("so"), "Hi", f1, *unclosed] == read(text, dialects=["inkling"])


INKLING_F = '<|content_invoke_tool_json|>{"name":"f","args":{"a":1}}<|end_message|>'


@together(
    ("text", "expected"),
    {
        "no type of the text": ("<|message_model|>Hi there<|end_message|>", ["Hi there"]),
        "one word": ("<|message_model|>Hi<|end_message|>", ["Hi"]),
        "Markdown": ("<|message_model|>**Hi**, you<|content_model_end_sampling|>", ["**Hi**, you"]),
        "a line feed before the type": ("<|message_model|>\n<|content_text|>Hi", ["Hi"]),
        "another role": ("<|message_user|><|content_text|>a<|end_message|><|message_model|><|content_text|>b", ["ab"]),
        "another type": ("a<|content_image|>b<|content_xml|>", ["ab"]),
        "text after reasoning that is not closed": ("<|content_thinking|>a<|content_text|>b", [thought("a"), "b"]),
        "a call after it": (f"<|content_thinking|>a<|message_model|>f{INKLING_F}", [thought("a"), f1]),
        "a call that the prompt has begun": (f"f{INKLING_F}", [f1]),
        "the name of another tool": (f"h{INKLING_F}", ["h", f1]),
        "a call with text": ("<|message_model|>f<|content_invoke_tool_text|>a<|end_message|>", [error("invalid_json")]),
    },
)
def test_no_token_of_inkling_is_shown(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=["inkling"], tools=[{"name": "f"}])


@together(
    ("text", "expected"),
    {
        "text, and two calls": ('all\nHi>>>f\n{"a": 1}>>>get_weather\n{}', ["Hi", f1, call("get_weather")]),
        "on a line of its own": ("Hi\n>>>f\n{}\n", ["Hi\n", f, "\n"]),
        "JSON for the user": ('>>>all\n{"a": 1}', ['{"a": 1}']),
        "a tool that is not declared": (">>>h\n{}", [">>>h\n{}"]),
        "broken JSON": (">>>f\n{x}.", [error("invalid_json"), "."]),
    },
)
def test_functionary_recipients_are_declared_tools(text: str, expected: list[Brief]) -> None:
    """JSON must follow the line of the name. `all` is the user."""
    tools = [{"name": name} for name in ("f", "get_weather", "all")]
    assert expected == read(text, dialects=["functionary_v32"], tools=tools)


@pytest.mark.parametrize("name", ["f", "fn", "fn2", "(x", "a|b", "météo", "g"])
def test_functionary_distinguishes_names_with_the_same_beginning(name: str) -> None:
    """Names of one letter, and names with special characters of patterns."""
    tools = [{"name": each} for each in ("f", "fn", "fn2", "(x", "a|b", "all", "météo", "g")]
    for text, content, names in [
        (f'{name} \n{{"a": 1}}', "", [name]),
        (f"x>>>{name}\r\n{{}}", "x", [name]),
        (f"{name}x\n{{}}", f"{name}x\n{{}}", []),
    ]:
        for deltas in ([text], list(text)):
            result = parse(deltas, dialects="functionary_v32", tools=tools)

            assert (content, names) == (result.content, [made.name for made in result.calls])
