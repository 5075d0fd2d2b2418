"""Tests of the dialects with channels: harmony, Kimi K3's XTML, and Cohere's actions."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import coalesce, parse
from streamtools.parsing.dialects import for_model, message_headers
from streamtools.testing.laws import feed, steps
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, read, thought, warning

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
        # A call ends with its message: at the token that ends it, or at the next message.
        "nothing, then a message": (TO_F + "<|message|> <|channel|>", [call("f"), UNCLOSED]),
        "half a null": (TO_F + "<|message|>nul<|call|>x", [error("invalid_arguments"), "x"]),
        "no quote": (TO_F + '<|message|>{"a":"b}<|call|>a "x" b', [error("invalid_json"), 'a "x" b']),
        "a key twice": (TO_F + '<|message|>{"a":1,"a":2}<|call|>', [error("duplicate_key")]),
        "cut in its arguments": (TO_F + '<|message|>{"a":', [error("truncated")]),
        "cut before them": (TO_F + "<|message|>", [error("truncated")]),
        "cut in something else": (TO_F + "<|message|>prin", [error("truncated")]),
        "in a quote, in a code span": (f"> `{F}", ["> `", f]),
        # Text that is not a header is shown.
        "cut in its header": ("a<|channel|>final", ["a"]),
        "a word at the start": ("final a", ["final a"]),
        "no header at all": ("<|channel|>final <x<|message|>a", ["<|channel|>final <x<|message|>a"]),
        "at the start a call": (" to=f<|channel|>final<|message|>{}", [call("f"), UNCLOSED]),
        "a space before what is no header": (" <|channel>x", [" <|channel>x"]),
        # The analysis channel is reasoning. It ends at its end token or at the next message.
        "ended": ("<|channel|>analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "begun by the prompt": ("analysis<|message|>a<|end|>b", [thought("a"), "b"]),
        "cut in its end": ("<|channel|>analysis<|message|>a<|end", [thought("a<|end")]),
    },
)
def test_messages_of_harmony(text: str, expected: list[Brief]) -> None:
    """Headers and ends of messages are hidden."""
    assert expected == read(text, dialects=("harmony",))


def test_analysis_may_begin_in_the_prompt() -> None:
    options: dict[str, Any] = {"dialects": ("harmony",), "in_reasoning": True}

    assert [thought("a"), "b"] == read(f"a<|end|>{START}<|channel|>final<|message|>b", **options)
    assert [thought("a"), f] == read(f"a{START}{F}", **options)


FAULTY = {
    "the same channel twice": ("<|channel|>commentary commentary to=functions.f<|message|>", f),
    "glued": ("<|channel|>commentarycommentary to=functions.f json<|message|>", f),
    "a channel before the header": ("<|channel|>commentary<|channel|>commentary to=functions.f<|message|>", f),
    "three channels": (f"{TO_F}<|channel|>commentary<|channel|>commentary<|message|>", f),
    "the header after a name": (f"{START}{TO_F} commentary to=functions.f json<|message|>", f),
    "two recipients": ("<|channel|>commentary to=g<|channel|>commentary to=functions.f json<|message|>", f),
    "a recipient, then another": (f"{START} to=g<|channel|>commentary to=functions.f<|message|>", f),
    "a dash": ("<|channel|>-commentary to=functions.f<|message|>", f),
    "question marks": ("<|channel|>commentary?? to=functions.f?? <|constrain|>json<|message|>", f),
    "no token before the JSON": ("<|channel|>commentary to=functions.f <|constrain|>json", f),
    "no type of the content either": (TO_F, f),
    "a line feed before a token": ("<|channel|>commentary to=functions.f\n<|constrain|>json<|message|>", f),
    "a line feed before the channel": (f"{START}\n{TO_F} json<|message|>", f),
    "a line feed before the message": (f"{TO_F} <|constrain|>json\r\n<|message|>", f),
    "a line feed before the JSON": (f"{TO_F} <|constrain|>json\n", f),
    "a channel with a capital letter": ("<|channel|>Commentary to=functions.f json<|message|>", f),
    **{
        f"the namespace {namespace}": (f"<|channel|>commentary to={namespace}f json<|message|>", f)
        for namespace in ("", "function.", "functions/", "functions:", "function:")
    },
    "another namespace": ("<|channel|>commentary to=tools.f json<|message|>", call("tools.f", a=1)),
    "no recipient": ("<|channel|>commentary to=<|constrain|>json<|message|>", error("missing_tool_name")),
    "no recipient after the role": (f"{START}<|channel|>commentary to= <|message|>", error("missing_tool_name")),
}
"""Headers of calls that models write, and what a message after each of them is."""


@together(("header", "expected"), FAULTY)
@pytest.mark.parametrize("dialects", [("harmony",), pytest.param("auto", marks=pytest.mark.deep)])
def test_a_faulty_header_of_a_call_is_read(header: str, expected: Brief, dialects: Any) -> None:
    message = header + '{"a":1}<|call|>'
    assert [expected] == read(message, dialects=dialects)
    assert ["Hi.", expected] == read(f"<|channel|>final<|message|>Hi.<|end|>{message}", dialects=dialects)
    assert [thought("Hm"), expected] == read(f"<|channel|>analysis<|message|>Hm<|end|>{message}", dialects=dialects)


@together(
    ("header", "reasons"),
    {
        "a dash before analysis": ("<|channel|>-analysis<|message|>", True),
        "question marks after analysis": ("<|channel|>analysis??<|message|>", True),
        "analysis is the last": ("<|channel|>final<|channel|>analysis <|constrain|>json<|message|>", True),
        "analysis is the last word": (f"{START}<|channel|>final analysis code<|message|>", True),
        "analysis twice": ("<|channel|>analysis<|channel|>analysis<|message|>", True),
        "a capital letter": ("<|channel|>Analysis<|message|>", True),
        "a line feed before the message": ("<|channel|>analysis\n<|message|>", True),
        "a line feed before the channel": (f"{START}\n<|channel|>analysis<|message|>", True),
        "line feeds before two tokens": ("<|channel|>analysis\n<|channel|>final\n<|message|>", False),
        "capital letters": ("<|channel|>Analysis<|channel|>Final<|message|>", False),
        "final is the last": ("<|channel|>analysis<|channel|>final<|message|>", False),
        "final is the last word": ("<|channel|>analysis final<|message|>", False),
        "only question marks": ("<|channel|>??<|message|>", False),
        "another word": ("<|channel|>x=1 y<|message|>", False),
        "nothing, then the message": ("<|channel|>final<|end|><|start|>assistant<|channel|>final<|message|>", False),
        "a header, then the next": ("<|channel|>analysis<|start|>assistant<|channel|>final<|message|>", False),
    },
)
@pytest.mark.parametrize("dialects", [("harmony",), pytest.param("auto", marks=pytest.mark.deep)])
def test_the_last_channel_of_a_header_is_used(header: str, reasons: bool, dialects: Any) -> None:
    expected = [thought("a"), "b"] if reasons else ["ab"]
    assert expected == read(f"{header}a<|end|>b", dialects=dialects)


def test_a_header_that_is_read_by_its_first_channel_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_headers, "_AFTER_CHANNEL", message_headers._ANY)
    planted = message_headers.harmony()
    text = "<|channel|>analysis<|channel|>final<|message|>a<|end|>b"
    assert ["ab"] == brief(coalesce(feed([text], dialects=["harmony"])))
    assert [thought("a"), "b"] == brief(coalesce(feed([text], dialects=[planted])))


def test_a_call_that_ends_in_its_header_is_an_error() -> None:
    for end in ("<|call|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>"):
        assert [error("unrecognised_tool_call"), "b"] == read(f"{TO_F} json{end}b", dialects=("harmony",))


# Harmony without its tokens.

DECLARED = [{"name": "f"}, {"name": "parse_json"}]
UNMARKED_F = 'commentary to=functions.f json{"a":1}'
HM = "analysisHm."

UNMARKED: dict[str, tuple[str, list[Brief]]] = {
    "a call": (UNMARKED_F, [f]),
    "with the role": (f"assistant{UNMARKED_F}", [f]),
    "code": ('commentary to=functions.f code{"a":1}', [f]),
    "JSON on the next line": ('commentary to=functions.f json\n{"a":1}', [f]),
    "no namespace": ('commentary to=f json{"a":1}', [f]),
    "no type": ('commentary to=functions.f{"a":1}', [f]),
    "no space before the type": ('commentary to=functions.fjson{"a":1}', [f]),
    "in the channel analysis": ('analysis to=functions.f json{"a":1}', [f]),
    "a name like a type": ('commentary to=functions.parse_json{"a":1}', [call("parse_json", a=1)]),
    "the recipient first": ('to=functions.fcommentary json{"a":1}', [f]),
    "the role and the recipient first": ('assistant to=functions.fcommentary json{"a":1}', [f]),
    "reasoning and a call": (f"{HM}assistant{UNMARKED_F}", [thought("Hm."), f]),
    "no role after reasoning": (f"{HM}{UNMARKED_F}", [thought("Hm."), f]),
    "reasoning and the recipient": (f'{HM}assistant to=functions.fcommentary json{{"a":1}}', [thought("Hm."), f]),
    "reasoning and an answer": (f"{HM}assistantfinalThe answer", [thought("Hm."), "The answer"]),
    "an answer of a small letter": (f"{HM}assistantfinalfinally", [thought("Hm."), "finally"]),
    "an answer after a space": (f"{HM}assistantfinal it is", [thought("Hm."), " it is"]),
    "an answer after a line feed": (f"{HM}assistantfinal\n# It", [thought("Hm."), "\n# It"]),
    "an answer in JSON": ('final{"a":1}', ['{"a":1}']),
    "an answer in bold": ("final**a**", ["**a**"]),
    "an answer in Chinese": ("final你好", ["你好"]),
    "an empty answer": (f"{HM}assistantfinal", [thought("Hm.")]),
    "reasoning twice": (f"{HM}assistantanalysisMore.assistantfinalHi", [thought("Hm.More."), "Hi"]),
    "only an answer": ("finalThe answer", ["The answer"]),
    "an answer with the role": ("assistantfinalThe answer", ["The answer"]),
    "a preamble": (f"commentaryI look.assistant{UNMARKED_F}", ["I look.", f]),
    "a preamble without a call": ("commentaryI look.assistantfinalIt is 5.", ["I look.It is 5."]),
    "reasoning after a preamble": (f"commentaryI look.assistant{HM}", ["I look.", thought("Hm.")]),
    "two calls": (f"{UNMARKED_F}assistant{UNMARKED_F}", [f, f]),
    "a call and an answer": (f"{UNMARKED_F}assistantfinalHi", [f, "Hi"]),
    "no name": ("commentary to=functions.{}", [error("missing_tool_name")]),
    "a name of white space": ("commentary to=\x0b{}", [error("missing_tool_name")]),
    "an unknown tool": ("commentary to=functions.g json{}", [call("g")]),
    "JSON that is cut": ('commentary to=functions.f json{"a":', [error("truncated")]),
    "a recipient that is cut": ("to=functions.f", [error("truncated")]),
    "a header that is cut": ("commentary to=functions.f js", [error("truncated")]),
    "JSON that is wrong": ("commentary to=functions.f json{x}\n\nHi", [error("invalid_json"), "\n\nHi"]),
    "no JSON": ("analysis to=python code\nx = 1\n\nHi", [error("invalid_arguments"), "\nHi"]),
    **{
        f"{text!r} is text": (text, [text])
        for text in (
            "finally, it works", "final answer: 42", "final.", "final", "finals", "Final answer", "Analysis of data",
            "analysis of data", "analysis: x", "analysis", "analysis's role", "analysis’s role", "final—it is",
            "commentary on it", "commentary", "assistants", "assistant", "The assistantfinal and assistantanalysis.",
            "Write `assistantfinalThe`.", "```\nanalysisWe.assistantfinalThe\n```\n", "So analysisWe and finalThe.",
            "It said commentary to=functions.f json{} before.", "to=f json{}", "to=fun",
        )
    },
}  # fmt: skip
"""What servers stream that render the tokens as empty strings, and its events."""


@together(("text", "expected"), UNMARKED)
def test_harmony_without_its_tokens_is_read(text: str, expected: list[Brief]) -> None:
    """If the caller names the dialect or the model. With other models, it is text."""
    assert expected == read(text, dialects=("harmony",), tools=DECLARED)
    events = brief(coalesce(feed(list(text), dialects=for_model("openai/gpt-oss-20b"), tools=DECLARED)))
    assert expected == events
    assert [text] == read(text, tools=DECLARED)
    assert [text] == read(text, dialects=("hermes_json", "glm_xml"), tools=DECLARED)


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
EMPTY = "<|open|>json<|sep|>{}<|close|>json<|sep|>"
REHEARSAL = f"I could {OPEN}."


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
        # Each call is a separate span.
        "the first is not closed": (TOOLS + OPEN + A + OPEN + A + END, [f, UNCLOSED, f]),
        "no name": ('<|open|>call index="1"<|sep|>' + END, [error("missing_tool_name")]),
        "no number": (OPEN + argument("a", "oops", "number") + END, [error("invalid_arguments")]),
        "half an array": (OPEN + argument("a", "[1", "array") + END, [error("invalid_arguments")]),
        "no key": (OPEN + "<|open|>argument<|sep|>1" + END, [error("unrecognised_tool_call")]),
        "a tag that does not end": ("<|open|>call tool=<|sap|>" + END, [error("unrecognised_tool_call")]),
        "an argument's does not": (OPEN + "<|open|>argument k<x" + END, [error("unrecognised_tool_call")]),
        "both forms": (OPEN + A + "<|open|>json<|sep|>{}" + END, [error("unrecognised_tool_call")]),
        "both, the other way round": (OPEN + EMPTY + A + END, [error("unrecognised_tool_call")]),
        "no quote": (OPEN + '<|open|>json<|sep|>{"a":"b}' + END + 'a "x" b', [error("invalid_json"), 'a "x" b']),
        "cut in a value": (OPEN + "<|open|>argument key='a'<|sep|>x<|close|>", [error("truncated")]),
        "cut after an argument": (OPEN + A, [error("truncated")]),
        "cut before JSON": (OPEN + "<|open|>json<|sep|>", [error("truncated")]),
        # Reasoning and the response.
        "reasoning": ("<|open|>think<|sep|>a<|close|>think<|sep|>b", [thought("a"), "b"]),
        "a rehearsal": (f"<|open|>think<|sep|>{REHEARSAL}<|close|>think<|sep|>", [thought(REHEARSAL), ALIKE]),
        "a fence at its end": (f"```\na\n```<|close|>response<|sep|>{OPEN}{A}{END}", ["```\na\n```", f]),
    },
)
def test_kimi_k3_writes_think_response_and_tools(text: str, expected: list[Brief]) -> None:
    """The tags around calls are hidden."""
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
