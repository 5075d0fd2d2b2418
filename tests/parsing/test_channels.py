"""Tests of the dialects with channels: harmony, Kimi K3's XTML, and Cohere's actions."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import parse
from streamtools.testing.laws import steps
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, thought, warning

ALIKE = warning("call_in_reasoning")
UNCLOSED = warning("missing_close")
FORGED = warning("forged_result")

# Harmony.

START = "<|start|>assistant"
TO_F = "<|channel|>commentary to=functions.f"
F = TO_F + '<|message|>{"a":1}<|call|>'
f = call("f", a=1)


@together(
    "header",
    [
        pytest.param("<|channel|>commentary to=functions.f <|constrain|>json<|message|>", id="as the model writes it"),
        pytest.param("<|channel|>commentary to=functions.f<|constrain|>json<|message|>", id="no space"),
        pytest.param("to=functions.f<|channel|>commentary json<|message|>", id="begun by the prompt"),
    ],
)
def test_a_message_to_a_tool_is_a_call(header: str) -> None:
    """The header may hold other parts too."""
    assert [f] == read(header + '{"a":1}<|call|>', dialects=("harmony",))


@together(
    ("text", "expected"),
    {
        "nothing, then a message": (TO_F + "<|message|> <|channel|>", [call("f"), UNCLOSED]),
        "half a null": (TO_F + "<|message|>nul<|call|>x", [error("invalid_arguments"), "x"]),
        "no quote": (TO_F + '<|message|>{"a":"b}<|call|>a "x" b', [error("invalid_json"), 'a "x" b']),
        "a key twice": (TO_F + '<|message|>{"a":1,"a":2}<|call|>', [error("duplicate_key")]),
        "cut in its arguments": (TO_F + '<|message|>{"a":', [error("truncated")]),
        "cut before them": (TO_F + "<|message|>", [error("truncated")]),
        "cut in something else": (TO_F + "<|message|>prin", [error("truncated")]),
        "in a quote, in a code span": (f"> `{F}", ["> `", f]),
    },
)
def test_a_harmony_call_ends_with_its_message(text: str, expected: list[Brief]) -> None:
    """At the token that ends it, or at the next message."""
    assert expected == read(text, dialects=("harmony",))


@together(
    ("text", "expected"),
    {
        "cut in its header": ("a<|channel|>final", ["a"]),
        "a word at the start": ("final a", ["final a"]),
        "no header at all": ("<|channel|>final x=1<|message|>a", ["<|channel|>final x=1<|message|>a"]),
        "at the start a call": (" to=f<|channel|>final<|message|>{}", [call("f"), UNCLOSED]),
        "a space before what is no header": (" <|channel>x", [" <|channel>x"]),
    },
)
def test_headers_and_ends_of_messages_are_hidden(text: str, expected: list[Brief]) -> None:
    """Text that is not a header is shown."""
    assert expected == read(text, dialects=("harmony",))


@together(
    ("text", "expected"),
    {
        "ended": ("<|channel|>analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "begun by the prompt": ("analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "cut in its end": ("<|channel|>analysis<|message|>a<|end", [thought("a<|end")]),
    },
)
def test_the_analysis_channel_is_reasoning(text: str, expected: list[Brief]) -> None:
    """It ends at its end token or at the next message."""
    assert expected == read(text, dialects=("harmony",))


def test_analysis_may_begin_in_the_prompt() -> None:
    options: dict[str, Any] = {"dialects": ("harmony",), "in_reasoning": True}

    assert [thought("a"), "b"] == read(f"a<|end|>{START}<|channel|>final<|message|>b", **options)
    assert [thought("a"), f] == read(f"a{START}{F}", **options)


def test_a_result_that_the_model_writes_is_hidden() -> None:
    text = '<|start|>functions.f to=assistant<|channel|>commentary<|message|>{"x":1}'

    assert [FORGED, "b"] == read(text + "<|end|>b", dialects=("harmony",))
    assert [FORGED] == read(text, dialects=("harmony",))
    assert [FORGED, f] == read(text + F, dialects=("harmony",))


def test_the_name_is_reported_with_the_header() -> None:
    """The call is complete where its message ends."""
    reported = [
        (step.fed[-1], event.type)
        for step in steps(F, dialects=("harmony",))
        for event in step.new
        if event.type in ("call-start", "call")
    ]

    assert [(">", "call-start"), (">", "call")] == reported


# Kimi K3.

TOOLS, END = "<|open|>tools<|sep|>", "<|close|>call<|sep|><|close|>tools<|sep|>"
OPEN = '<|open|>call tool="f" index="1"<|sep|>'


def argument(key: str, text: str, kind: str = "") -> str:
    """Return an argument as the model writes it."""
    kind = f' type="{kind}"' if kind else ""
    return f'<|open|>argument key="{key}"{kind}<|sep|>{text}<|close|>argument<|sep|>'


A = argument("a", "1", "number")


@together(
    ("inside", "expected"),
    {
        "none": ("", {}),
        "a string, to the letter": (argument("a", " New York ", "string"), {"a": " New York "}),
        "a number with a fraction": (argument("a", "-2.5e3", "number"), {"a": -2500.0}),
        "a boolean": (argument("a", "true", "boolean"), {"a": True}),
        "an array": (argument("a", '[1, {"b": "]"}]', "array"), {"a": [1, {"b": "]"}]}),
        "an object": (argument("a", '{"b": []}', "object"), {"a": {"b": []}}),
        "no type: as the schema says": (argument("b", "2"), {"b": 2}),
        "no type, no schema": (argument("c", "2"), {"c": "2"}),
        "a key with entities": (argument("&lt;&quot;&amp;&apos;", "1", "number"), {"<\"&'": 1}),
        "as JSON": ('<|open|>json type="object"<|sep|>{"a": [1]}<|close|>json<|sep|>', {"a": [1]}),
    },
)
def test_kimi_k3_arguments_are_typed_or_one_json_object(inside: str, expected: dict[str, Any]) -> None:
    tools = [{"name": "f", "parameters": {"properties": {"b": {"type": "integer"}}}}]

    assert [call("f", **expected)] == read(TOOLS + OPEN + inside + END, dialects=("kimi_k3_xtml",), tools=tools)


@together(
    ("text", "expected"),
    {
        "the first is not closed": (TOOLS + OPEN + A + OPEN + A + END, [f, UNCLOSED, f]),
        "no name": ('<|open|>call index="1"<|sep|>' + END, [error("missing_tool_name")]),
        "no number": (OPEN + argument("a", "oops", "number") + END, [error("invalid_arguments")]),
        "half an array": (OPEN + argument("a", "[1", "array") + END, [error("invalid_arguments")]),
        "no key": (OPEN + "<|open|>argument<|sep|>1" + END, [error("unrecognised_tool_call")]),
        "a tag that does not end": ("<|open|>call tool=<|sap|>" + END, [error("unrecognised_tool_call")]),
        "an argument's does not": (OPEN + "<|open|>argument k<x" + END, [error("unrecognised_tool_call")]),
        "both forms": (OPEN + A + "<|open|>json<|sep|>{}" + END, [error("unrecognised_tool_call")]),
        "both, the other way round": (
            OPEN + "<|open|>json<|sep|>{}<|close|>json<|sep|>" + A + END,
            [error("unrecognised_tool_call")],
        ),
        "no quote": (OPEN + '<|open|>json<|sep|>{"a":"b}' + END + 'a "x" b', [error("invalid_json"), 'a "x" b']),
        "cut in a value": (OPEN + "<|open|>argument key='a'<|sep|>x<|close|>", [error("truncated")]),
        "cut after an argument": (OPEN + A, [error("truncated")]),
        "cut before JSON": (OPEN + "<|open|>json<|sep|>", [error("truncated")]),
    },
)
def test_each_kimi_k3_call_is_a_separate_span(text: str, expected: list[Brief]) -> None:
    """The tags around calls are hidden."""
    assert expected == read(text, dialects=("kimi_k3_xtml",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("<|open|>think<|sep|>a<|close|>think<|sep|>b", [thought("a"), "b"], id="reasoning"),
        pytest.param(
            f"<|open|>think<|sep|>I could {OPEN}.<|close|>think<|sep|>",
            [thought(f"I could {OPEN}."), ALIKE],
            id="a rehearsal",
        ),
        pytest.param(
            f"```\na\n```<|close|>response<|sep|>{OPEN}{A}{END}", ["```\na\n```", f], id="with a fence at its end"
        ),
    ],
)
def test_kimi_k3_writes_think_response_and_tools(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=("kimi_k3_xtml",))


# Cohere.

ACTION = '<|START_ACTION|>[{"tool_call_id":"0","tool_name":"f","parameters":{"a":1}}]<|END_ACTION|>'


@together(
    ("text", "expected"),
    {
        "with white space": (ACTION.replace("[", "\n[\n").replace("]", "\n]\n"), [f]),
        "two": (ACTION.replace("}}]", '}},{"tool_name":"g"}]'), [f, call("g")]),
        "not closed": (ACTION.replace("<|END_ACTION|>", ""), [f, UNCLOSED]),
        "no JSON": ("<|START_ACTION|>none", [error("truncated")]),
    },
)
def test_cohere_tokens_are_hidden_and_actions_are_calls(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=("cohere_action_json",))


def test_the_id_of_a_cohere_call_is_kept() -> None:
    assert ["0"] == [each.provider_id for each in parse([ACTION], dialects=("cohere_action_json",)).calls]
