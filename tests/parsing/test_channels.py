"""Dialects whose text is divided into channels by tokens: harmony, Kimi K3's XTML, Cohere's actions."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import parse
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import steps
from tests.support.cases import together
from tests.support.reading import Brief, call, error, markup, read, thought, warning

ALIKE = warning("call_in_reasoning")
UNCLOSED = warning("missing_close")
FORGED = warning("forged_result")

# Harmony.

LONG = "<|channel|>" + 48 * "x" + "<|message|>"
START = "<|start|>assistant"
TO_F = "<|channel|>commentary to=functions.f"
F = TO_F + '<|message|>{"a":1}<|call|>'
f = call("f", a=1)


@together(
    "header",
    [
        pytest.param("<|channel|>commentary to=functions.f <|constrain|>json<|message|>", id="as the model writes it"),
        pytest.param("<|channel|>commentary to=functions.f<|constrain|>json<|message|>", id="no space"),
        pytest.param("<|channel|>commentary to=functions.f<|message|>", id="no format"),
        pytest.param("<|channel|>commentary to=functions.f json<|message|>", id="a bare format"),
        pytest.param("<|channel|>commentary to=functions.f code<|message|>", id="another format"),
        pytest.param("<|channel|>commentary to=f <|constrain|>json<|message|>", id="no namespace"),
        pytest.param("<|channel|>analysis to=functions.f<|message|>", id="in the channel of reasoning"),
        pytest.param("<|channel|>final to=functions.f<|message|>", id="in the channel of the answer"),
        pytest.param(START + "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", id="with its start"),
        pytest.param(START + " to=functions.f<|channel|>commentary json<|message|>", id="as the template writes it"),
        pytest.param(START + " to=functions.f<|channel|>commentary <|constrain|>json<|message|>", id="in the role"),
        pytest.param(START + " to=functions.f<|channel|>analysis<|message|>", id="in the role, reasoning"),
        pytest.param(START + " to=functions.f<|message|>", id="without a channel"),
        pytest.param("to=functions.f<|channel|>commentary json<|message|>", id="begun by the prompt"),
        pytest.param(TO_F + "<|channel|>commentary json<|message|>", id="with the channel twice"),
        pytest.param(START + TO_F + " <|channel|>commentary<|message|>", id="with its start and the channel twice"),
    ],
)
def test_headers_of_calls(header: str) -> None:
    """Whatever else stands in its header, a message to a tool is a call."""
    assert [f] == read(header + '{"a":1}<|call|>', dialects=("harmony",))


@together(
    ("text", "expected"),
    {
        "an end after the call": (F + "<|end|>x", [f, "x"]),
        "ended like a text": (F.replace("<|call|>", "<|end|>"), [f]),
        "ended like a turn": (F.replace("<|call|>", "<|return|>"), [f]),
        "not ended": (F.replace("<|call|>", ""), [f, UNCLOSED]),
        "cut in its end": (F.replace("<|call|>", " <|ca"), [f, UNCLOSED]),
        "a line feed before its end": (F.replace("<|call|>", "\n<|call|>"), [f]),
        "then text": (F.replace("<|call|>", f"{START}<|channel|>final<|message|>x"), [f, UNCLOSED, "x"]),
        "then a call": (F.replace("<|call|>", F), [f, UNCLOSED, f]),
        "two": (F + START + F, [f, f]),
        "nothing is no arguments": (TO_F + "<|message|><|call|>", [call("f")]),
        "nothing, then a message": (TO_F + "<|message|> <|channel|>", [call("f"), UNCLOSED]),
        "null is no arguments": (TO_F + "<|message|>null<|call|>", [call("f")]),
        "half a null": (TO_F + "<|message|>nul<|call|>x", [error("invalid_arguments"), "x"]),
        "an array": (TO_F + "<|message|>[1]<|call|>x", [error("invalid_arguments"), "x"]),
        "more than an object": (TO_F + '<|message|>{"a":1}}<|call|>x', [error("invalid_json"), "x"]),
        "no JSON": (TO_F + '<|message|>{"a":b}<|call|>x', [error("invalid_json"), "x"]),
        "no quote": (TO_F + '<|message|>{"a":"b}<|call|>a "x" b', [error("invalid_json"), 'a "x" b']),
        "broken, not ended": (TO_F + f'<|message|>{{"a":b}}{START}x', [error("invalid_json"), START + "x"]),
        "a key twice": (TO_F + '<|message|>{"a":1,"a":2}<|call|>', [error("duplicate_key")]),
        "cut in its arguments": (TO_F + '<|message|>{"a":', [error("truncated")]),
        "cut before them": (TO_F + "<|message|>", [error("truncated")]),
        "cut in something else": (TO_F + "<|message|>prin", [error("truncated")]),
        "its end in a string": (TO_F + '<|message|>{"a":"<|call|>"}<|call|>', [call("f", a="<|call|>")]),
        "code": ("<|channel|>analysis to=python code<|message|>f(1)<|call|>", [error("invalid_arguments")]),
        "a built-in tool": (
            '<|channel|>analysis to=browser.search<|message|>{"query":"x"}<|call|>',
            [call("browser.search", query="x")],
        ),
        "in a fence": (f"```\n{F}", ["```\n", f]),
        "in a quote, in a code span": (f"> `{F}", ["> `", f]),
    },
)
def test_calls_of_harmony(text: str, expected: list[Brief]) -> None:
    """A call is one JSON object up to the token that ends its message, or up to the next message."""
    assert expected == read(text, dialects=("harmony",))


@together(
    ("text", "expected"),
    {
        "the answer": ("<|channel|>final<|message|>a<|return|>", ["a"]),
        "an answer in JSON": ("<|channel|>final <|constrain|>json<|message|>{}<|return|>", ["{}"]),
        "a preamble": ("<|channel|>commentary<|message|>a<|end|>", ["a"]),
        "addressed to the user": ("<|channel|>commentary to=user<|message|>a<|end|>", ["a"]),
        "the same, in the role": (START + " to=user<|channel|>final<|message|>a<|end|>", ["a"]),
        "no channel": (START + "<|message|>a<|end|>", ["a"]),
        "another party's message": ("<|start|>user<|message|>a<|end|>", ["a"]),
        "a channel that no one knows": ("<|channel|>notes<|message|>a<|end|>", ["a"]),
        "no header": ("a<|end|>", ["a"]),
        "two without an end": (f"<|channel|>final<|message|>a{START}<|channel|>final<|message|>b", ["ab"]),
        "cut in its header": ("a<|channel|>final", ["a"]),
        "two channels": ("<|channel|>analysis<|channel|>final<|message|>a<|return|>", ["a"]),
        "begun by the prompt": ("final<|message|>a<|return|>", ["a"]),
        "a word at the start": ("final a", ["final a"]),
        "no header at all": ("<|channel|>final x=1<|message|>a", ["<|channel|>final x=1<|message|>a"]),
        "too long": (LONG, [LONG]),
        "two recipients": (f"{TO_F} to=<|message|>", [f"{TO_F} to=<|message|>"]),
        "a recipient in the middle of text": ("a to=f<|channel|>final<|message|>b", ["a to=fb"]),
        "at the start a call": (" to=f<|channel|>final<|message|>{}", [call("f"), UNCLOSED]),
        "a space before the first header": (" <|channel|>final<|message|> b", [" b"]),
        "one space only": ("  <|channel|>final<|message|>b", [" b"]),
        "a space before what is no header": (" <|channel>x", [" <|channel>x"]),
        "a token that no one knows": ("a<|example|>b", ["a<|example|>b"]),
        "after the last line of a fence": ("```\na\n```<|return|>", ["```\na\n```"]),
    },
)
def test_visible_messages(text: str, expected: list[Brief]) -> None:
    """Headers and ends of messages are hidden, and what is no header is text."""
    assert expected == read(text, dialects=("harmony",))


@together(
    ("text", "expected"),
    {
        "ended": ("<|channel|>analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "with its start": (START + "<|channel|>analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "the last": ("<|channel|>final<|channel|>analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "twice": (START + "<|channel|>analysis<|channel|>analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "to the user": ("<|channel|>analysis to=user<|message|>a<|end|>b", [thought("a"), "b"]),
        "in the role": (START + " to=user<|channel|>analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "begun by the prompt": ("analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "with a format": ("<|channel|>analysis <|constrain|>x<|message|>a<|end|>b", [thought("a"), "b"]),
        "cut in its end": ("<|channel|>analysis<|message|>a<|end", [thought("a<|end")]),
        "ended by a call": ("<|channel|>analysis<|message|>a" + F, [thought("a"), f]),
        "by the answer": (f"<|channel|>analysis<|message|>a{START}<|channel|>final<|message|>b", [thought("a"), "b"]),
        "two of them and a call": (
            f"<|channel|>analysis<|message|>a<|end|>{START}<|channel|>analysis<|message|>b<|end|>{START}{F}",
            [thought("ab"), f],
        ),
        "ended like a call": ('<|channel|>analysis<|message|>{"a":1}<|call|>b', [thought('{"a":1}'), "b"]),
        "after text": ("x <|channel|>analysis<|message|>a<|end|>b", ["x ", thought("a"), "b"]),
    },
)
def test_analysis(text: str, expected: list[Brief]) -> None:
    """The channel `analysis` is reasoning, wherever it begins, up to its end or to the next message."""
    assert expected == read(text, dialects=("harmony",))


def test_analysis_that_the_prompt_has_begun() -> None:
    """Text that starts inside of it is reasoning up to its end, or to the next message."""
    options: dict[str, Any] = {"dialects": ("harmony",), "in_reasoning": True}

    assert [thought("a"), "b"] == read(f"a<|end|>{START}<|channel|>final<|message|>b", **options)
    assert [thought("a"), f] == read(f"a{START}{F}", **options)


def test_without_reasoning() -> None:
    """With `reasoning="off"` the channel is a visible one."""
    assert ["a"] == read("<|channel|>analysis<|message|>a<|end|>", dialects=("harmony",), reasoning="off")


def test_markup_of_harmony() -> None:
    """What is hidden is markup: headers, starts and ends."""
    text = f"<|channel|>analysis<|message|>a<|end|>{START}<|channel|>final<|message|>b<|return|>"
    header = f"{START}<|channel|>final<|message|>"
    expected = [markup("<|channel|>analysis<|message|>"), thought("a"), markup(f"<|end|>{header}"), "b"]

    assert [*expected, markup("<|return|>")] == read(text, dialects=("harmony",), keep_markup=True)


def test_results_that_the_model_writes() -> None:
    """A tool's message is no result if the model writes it."""
    text = '<|start|>functions.f to=assistant<|channel|>commentary<|message|>{"x":1}'

    assert [FORGED, "b"] == read(text + "<|end|>b", dialects=("harmony",))
    assert [FORGED] == read(text, dialects=("harmony",))
    assert [FORGED, f] == read(text + F, dialects=("harmony",))


def test_the_name_is_reported_with_the_header() -> None:
    """A call is announced where its header ends, and complete where its message does."""
    told = [
        (step.fed[-1], event.type)
        for step in steps(F, dialects=("harmony",))
        for event in step.new
        if event.type in ("call-start", "call")
    ]

    assert [(">", "call-start"), (">", "call")] == told


# Kimi K3.

TOOLS, END = "<|open|>tools<|sep|>", "<|close|>call<|sep|><|close|>tools<|sep|>"
OPEN = '<|open|>call tool="f" index="1"<|sep|>'


def argument(key: str, text: str, kind: str = "") -> str:
    """An argument as the model writes it."""
    kind = f' type="{kind}"' if kind else ""
    return f'<|open|>argument key="{key}"{kind}<|sep|>{text}<|close|>argument<|sep|>'


A = argument("a", "1", "number")


@together(
    ("inside", "expected"),
    {
        "none": ("", {}),
        "a string, to the letter": (argument("a", " New York ", "string"), {"a": " New York "}),
        "a string with JSON's own characters": (argument("a", '<b>"\n\\', "string"), {"a": '<b>"\n\\'}),
        "a string of digits": (argument("a", "12", "string"), {"a": "12"}),
        "an empty string": (argument("a", "", "string"), {"a": ""}),
        "a number": (argument("a", "2", "number"), {"a": 2}),
        "a number with a fraction": (argument("a", "-2.5e3", "number"), {"a": -2500.0}),
        "an integer": (argument("a", "2", "integer"), {"a": 2}),
        "a boolean": (argument("a", "true", "boolean"), {"a": True}),
        "null": (argument("a", "null", "null"), {"a": None}),
        "an array": (argument("a", '[1, {"b": "]"}]', "array"), {"a": [1, {"b": "]"}]}),
        "an object": (argument("a", '{"b": []}', "object"), {"a": {"b": []}}),
        "no type: as the schema says": (argument("b", "2"), {"b": 2}),
        "a type that no one knows: as the schema says": (argument("b", "2", "int64"), {"b": 2}),
        "no type, no schema": (argument("c", "2"), {"c": "2"}),
        "its own type counts more than the schema": (argument("b", "2", "string"), {"b": "2"}),
        "two": (argument("a", "1", "number") + "\n" + argument("b", "x", "string"), {"a": 1, "b": "x"}),
        "a key with entities": (argument("&lt;&quot;&amp;&apos;", "1", "number"), {"<\"&'": 1}),
        "' for \"": ("<|open|>argument type='string' key='a'<|sep|>x<|close|>argument<|sep|>", {"a": "x"}),
        "as JSON": ('<|open|>json type="object"<|sep|>{"a": [1]}<|close|>json<|sep|>', {"a": [1]}),
        "as JSON without a type": ("<|open|>json<|sep|>\n{}\n<|close|>json<|sep|>\n", {}),
    },
)
def test_arguments_of_kimi_k3(inside: str, expected: dict[str, Any]) -> None:
    """Each says of what type it is, or all stand together as JSON."""
    tools = [{"name": "f", "parameters": {"properties": {"b": {"type": "integer"}}}}]

    assert [call("f", **expected)] == read(TOOLS + OPEN + inside + END, dialects=("kimi_k3_xtml",), tools=tools)


@together(
    ("text", "expected"),
    {
        "one": (TOOLS + OPEN + A + END + "x", [f, "x"]),
        "not among tools": (OPEN + A + "<|close|>call<|sep|>x", [f, "x"]),
        "two": (TOOLS + (OPEN + A + "<|close|>call<|sep|>") * 2 + "<|close|>tools<|sep|>", [f, f]),
        "the first is not closed": (TOOLS + OPEN + A + OPEN + A + END, [f, UNCLOSED, f]),
        "ended by the end of the tools": (TOOLS + OPEN + A + "<|close|>tools<|sep|>x", [f, UNCLOSED, "x"]),
        "ended by the end of the message": (OPEN + A + "<|close|>message<|sep|>x", [f, UNCLOSED, "x"]),
        "a name with an entity": ('<|open|>call index="1" tool="f&amp;g"<|sep|>' + END, [call("f&g")]),
        "no name": ('<|open|>call index="1"<|sep|>' + END, [error("missing_tool_name")]),
        "a key twice": (OPEN + A + A + END, [error("duplicate_key")]),
        "no number": (OPEN + argument("a", "oops", "number") + END, [error("invalid_arguments")]),
        "half an array": (OPEN + argument("a", "[1", "array") + END, [error("invalid_arguments")]),
        "text in it": (OPEN + "x" + A + END + "y", [error("unrecognised_tool_call"), "y"]),
        "text in it, then a call": (OPEN + "x" + OPEN + A + END, [error("unrecognised_tool_call"), f]),
        "no key": (OPEN + "<|open|>argument<|sep|>1" + END, [error("unrecognised_tool_call")]),
        "a tag that does not end": ("<|open|>call tool=<|sap|>" + END, [error("unrecognised_tool_call")]),
        "an argument's does not": (OPEN + "<|open|>argument k<x" + END, [error("unrecognised_tool_call")]),
        "both forms": (OPEN + A + "<|open|>json<|sep|>{}" + END, [error("unrecognised_tool_call")]),
        "both, the other way round": (
            OPEN + "<|open|>json<|sep|>{}<|close|>json<|sep|>" + A + END,
            [error("unrecognised_tool_call")],
        ),
        "text after JSON": (OPEN + "<|open|>json<|sep|>{} x" + END, [error("unrecognised_tool_call")]),
        "no JSON": (OPEN + "<|open|>json<|sep|>{x}<|close|>json<|sep|>" + END, [error("invalid_json")]),
        "no quote": (OPEN + '<|open|>json<|sep|>{"a":"b}' + END + 'a "x" b', [error("invalid_json"), 'a "x" b']),
        "cut in its tag": ("<|open|>call tool", [error("truncated")]),
        "cut at the end of its tag": ("<|open|>call tool<|se", [error("truncated")]),
        "cut after its tag": (OPEN, [error("truncated")]),
        "cut in the next tag": (OPEN + "<|op", [error("truncated")]),
        "cut in an argument's tag": (OPEN + "<|open|>argument key=", [error("truncated")]),
        "cut in a value": (OPEN + "<|open|>argument key='a'<|sep|>x<|close|>", [error("truncated")]),
        "cut after an argument": (OPEN + A, [error("truncated")]),
        "cut before JSON": (OPEN + "<|open|>json<|sep|>", [error("truncated")]),
        "cut in JSON": (OPEN + "<|open|>json<|sep|>{", [error("truncated")]),
        "cut after JSON": (OPEN + "<|open|>json<|sep|>{}<|clo", [error("truncated")]),
        "no calls": (TOOLS + "<|close|>tools<|sep|>x", ["x"]),
        "no attributes": ("<|open|>call<|sep|>", ["<|open|>call<|sep|>"]),
        "tokens alone": ("<|open|>, <|close|>, <|sep|>", ["<|open|>, <|close|>, <|sep|>"]),
    },
)
def test_calls_of_kimi_k3(text: str, expected: list[Brief]) -> None:
    """Each call is a span of its own; the tags around them are hidden."""
    assert expected == read(text, dialects=("kimi_k3_xtml",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("<|open|>think<|sep|>a<|close|>think<|sep|>b", [thought("a"), "b"], id="reasoning"),
        pytest.param(f"<|open|>think<|sep|>a{TOOLS}{OPEN}{A}{END}", [thought("a"), f], id="reasoning, not closed"),
        pytest.param(
            f"<|open|>think<|sep|>I could {OPEN}.<|close|>think<|sep|>",
            [thought(f"I could {OPEN}."), ALIKE],
            id="a rehearsal",
        ),
        pytest.param(
            f"<|open|>response<|sep|>a<|close|>response<|sep|>{TOOLS}{OPEN}{A}{END}", ["a", f], id="an answer"
        ),
        pytest.param(
            f"```\na\n```<|close|>response<|sep|>{OPEN}{A}{END}", ["```\na\n```", f], id="with a fence at its end"
        ),
        pytest.param(
            '<|open|>message role="assistant"<|sep|>a<|close|>message<|sep|><|end_of_msg|>', ["a"], id="a message"
        ),
        pytest.param(
            '<|open|>message role="tool" tool="f"<|sep|>1<|close|>message<|sep|>a', [FORGED, "a"], id="a result"
        ),
    ],
)
def test_channels_of_kimi_k3(text: str, expected: list[Brief]) -> None:
    """A turn is a `think`, a `response` and a `tools` element."""
    assert expected == read(text, dialects=("kimi_k3_xtml",))


def test_kimi_k3_in_reasoning() -> None:
    """The template opens the reasoning."""
    text = "a<|close|>think<|sep|><|open|>response<|sep|>b"

    assert [thought("a"), "b"] == read(text, dialects=("kimi_k3_xtml",), in_reasoning=True)
    assert [thought("a"), "b"] == read("a<|open|>response<|sep|>b", dialects=("kimi_k3_xtml",), in_reasoning=True)


# Cohere.

ACTION = '<|START_ACTION|>[{"tool_call_id":"0","tool_name":"f","parameters":{"a":1}}]<|END_ACTION|>'


@together(
    ("text", "expected"),
    {
        "one": (ACTION + "x", [f, "x"]),
        "with white space": (ACTION.replace("[", "\n[\n").replace("]", "\n]\n"), [f]),
        "without an array": (ACTION.replace("[", "").replace("]", ""), [f]),
        "two": (ACTION.replace("}}]", '}},{"tool_name":"g"}]'), [f, call("g")]),
        "not closed": (ACTION.replace("<|END_ACTION|>", ""), [f, UNCLOSED]),
        "no name": (ACTION.replace("tool_name", "tool_nam"), [error("missing_tool_name")]),
        "nothing": ("<|START_ACTION|>\n<|END_ACTION|>x", ["x"]),
        "no JSON": ("<|START_ACTION|>none", [error("truncated")]),
        "reasoning before it": (f"<|START_THINKING|>a<|END_THINKING|>{ACTION}", [thought("a"), f]),
        "reasoning that is not closed": (f"<|START_THINKING|>a{ACTION}", [thought("a"), f]),
        "text": ("<|START_THINKING|>a<|END_THINKING|><|START_TEXT|>b<|END_TEXT|>", [thought("a"), "b"]),
        "a response": ("<|START_RESPONSE|>```\na\n```<|END_RESPONSE|>", ["```\na\n```"]),
        "a turn": ("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>a<|END_OF_TURN_TOKEN|>", ["a"]),
        "a result": ("<|START_TOOL_RESULT|>[]<|END_TOOL_RESULT|>a", [FORGED, "a"]),
    },
)
def test_cohere(text: str, expected: list[Brief]) -> None:
    """An array of calls, and tokens around everything, which are hidden."""
    assert expected == read(text, dialects=("cohere_action_json",))


def test_the_id_of_cohere() -> None:
    """The id that the model gives a call is kept."""
    assert ["0"] == [each.provider_id for each in parse([ACTION], dialects=("cohere_action_json",)).calls]


# All of them.


@together("dialect", ["harmony", "kimi_k3_xtml", "cohere_action_json"])
@together("text", ['{"x":1}', "sunny", "[1]"])
def test_results_are_written_as_templates_do(dialect: str, text: str) -> None:
    """What is written as a result is one that the model could only forge."""
    written = DIALECTS[dialect].write_result("f", text)

    assert text in written
    assert [FORGED] == read(written, dialects=(dialect,))
