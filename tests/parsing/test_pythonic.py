"""Tests of the four dialects of calls in Python syntax."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools import Parser
from streamtools.events import CallDelta
from streamtools.limits import Limits
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import feed
from tests.support.bounds import stored
from tests.support.cases import cases, together
from tests.support.reading import Brief, brief, call, error, raws, read, thought, warning

TOOLS: list[dict[str, Any]] = [{"name": name, "parameters": {}} for name in ("f", "g", "get_weather", "a.b")]
OLMO = {"dialects": ["olmo3_pythonic"]}
LFM2 = {"dialects": ["lfm2_pythonic"]}
BARE = {"dialects": ["pythonic"], "tools": TOOLS}
f, g = call("f"), call("g")
UNREADABLE = error("unrecognised_tool_call")


def olmo(text: str) -> str:
    """Return a text between the tags of OLMo."""
    return f"<function_calls>{text}</function_calls>"


@together(
    ("inner", "expected"),
    {
        "one argument": ("f(a=1)", [call("f", a=1)]),
        "two stars and a trailing comma": ("f(**{'a': 1},)", [call("f", a=1)]),
        "two lists and a comma": ("[f()], [g()]", [f, g]),
    },
)
def test_calls_between_tags_stand_in_a_list_or_on_lines(inner: str, expected: list[Brief]) -> None:
    """Text around the tags is visible."""
    text = olmo(inner)
    assert expected == read(text, **OLMO)
    assert ["So: ", *expected, " then\n", *expected, "!"] == brief(feed([f"So: {text} then\n{text}!"], **OLMO))
    for dialect, opening, close in [
        ("lfm2_pythonic", "<|tool_call_start|>", "<|tool_call_end|>"),
        ("pythonic_llama4", "<|python_start|>", "<|python_end|>"),
    ]:
        if "function_calls" not in inner:
            assert expected == brief(feed([opening + inner + close], dialects=[dialect]))


@together(
    ("inner", "expected"),
    {
        "a good one after a bad one": ("f(a=[x, 1])\ng()", [error("invalid_arguments"), g]),
        "half of a pair": ("f(a='\\ud83d')", [error("lone_surrogate")]),
        "one star": ("f(*{'a': 1})", [UNREADABLE]),
        "two stars and a list": ("f(**[1])", [UNREADABLE]),
        "text after two stars": ("f(**{'a': 1} b=2)", [UNREADABLE]),
        "a parenthesis too many": ("f(a=1))", [call("f", a=1), UNREADABLE]),
    },
)
def test_malformed_calls_end_at_the_tag(inner: str, expected: list[Brief]) -> None:
    """Other calls survive, and the answer continues after the tag."""
    assert [*expected, " so"] == read(olmo(inner) + " so", **OLMO)


def test_a_missing_quote_does_not_hide_the_answer() -> None:
    """The closing tag is also searched for in the string."""
    text = "<function_calls>f(a='x)</function_calls> It's \"done\", isn't it?"
    assert [UNREADABLE, " It's \"done\", isn't it?"] == read(text, **OLMO)
    assert [text[: text.index(" It")]] == raws(text, **OLMO)


@together(
    ("text", "expected"),
    {
        "no closing tag": ("<function_calls>f()", [f, warning("missing_close")]),
        "half of the closing tag": ("<function_calls>f()</func", [f, warning("missing_close")]),
        "no closing parenthesis": ("<function_calls>f(", [error("truncated")]),
        "cut in a string without a name": ("<function_calls>f('x", [error("truncated")]),
        "an opening tag in the place of a closing one": (
            "<function_calls>f() <function_calls>g()</function_calls>",
            [f, warning("missing_close"), g],
        ),
    },
)
def test_only_the_closing_tag_may_be_missing_at_the_end(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, **OLMO)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<function_calls> are it", id="the tag alone"),
        pytest.param("<function_calls>\n<invoke name='f'>", id="the other dialect of the tag"),
        pytest.param("<function_calls>{}</function_calls>", id="JSON"),
    ],
)
def test_a_name_and_a_parenthesis_commit(text: str) -> None:
    assert [text] == read(text, **OLMO)


def test_lfm2_and_llama4_accept_json_between_their_tags() -> None:
    for inner in ('[{"name":"f","arguments":{"a":1}}]', '{"name":"f","arguments":{"a":1}}', "[f(a=1)]", "f(a=1)"):
        text = f"Yes.<|tool_call_start|>{inner}<|tool_call_end|> Done."
        assert ["Yes.", call("f", a=1), " Done."] == read(text, **LFM2)
        text = f"Yes.<|python_start|>{inner}<|python_end|> Done."
        assert ["Yes.", call("f", a=1), " Done."] == read(text, dialects=["pythonic_llama4"], tools=TOOLS)


@together(
    ("text", "expected"),
    {
        "two calls": ("\n [f(a=1), g(b='x')]\n", ["\n ", call("f", a=1), call("g", b="x"), "\n"]),
        "no bracket at the end": ("[f()", [f, warning("missing_close")]),
        "what was read before it counts": ("[f(), g() is\n \t\nSo", [f, UNREADABLE, " \t\nSo"]),
        "cut before the parenthesis": ("[get_weather", ["[get_weather"]),
    },
)
def test_a_list_without_tags_needs_declared_tools(text: str, expected: list[Brief]) -> None:
    """It must be at the start of a message."""
    assert expected == read(text, **BARE)


@pytest.mark.parametrize("dialect", ["pythonic_llama4", "lfm2_pythonic"])
def test_the_tags_of_a_list_may_be_missing(dialect: str) -> None:
    """A model forgets them, or a tokenizer drops them. `auto` requires the tags."""
    options: dict[str, Any] = {"dialects": [dialect], "tools": TOOLS}

    assert [thought("x"), call("f", a=1), g] == read("<think>x</think>[f(a=1), g()]", **options)
    assert ["[f](url)"] == read("[f](url)", **options)
    assert ["So: [f()]"] == read("So: [f()]", **options)
    assert ["[f()]"] == read("[f()]", dialects="auto", tools=TOOLS)


def test_pythonic_reads_the_tags_of_llama4() -> None:
    """Inference servers call both dialects pythonic."""
    text = "a <|python_start|>[f(a=1)]<|python_end|> b"
    assert ["a ", call("f", a=1), " b"] == read(text, dialects=["pythonic"])


@pytest.mark.parametrize(
    ("limits", "inner", "expected"),
    [
        pytest.param(Limits(depth=2), "f(a=[[1]])", [error("too_deep"), warning("skipped", 22)], id="too deep"),
        pytest.param(
            Limits(call=30), "f(a='xxxxxxxxxxxxxxx')", [error("too_large"), warning("skipped", 25)], id="size"
        ),
        pytest.param(Limits(calls=1), "f()\ng()", [f, error("too_many_calls"), warning("skipped", 19)], id="number"),
        pytest.param(
            Limits(call=20, depth=2), "f(a=[[[1]]])", [error("too_large"), warning("skipped", 25)], id="size, and deep"
        ),
    ],
)
def test_a_call_over_the_limit_is_one_error_with_its_name(limits: Limits, inner: str, expected: list[Brief]) -> None:
    """The rest is skipped up to the tag."""
    assert [*expected, "so"] == read(olmo(inner) + "so", limits=limits, **OLMO)


def test_a_cut_mark_is_read_again_after_a_limit() -> None:
    text = "<|tool_call>call:f{a:[" + "1," * 30 + "<tool_call|>so"
    expected = [error("too_large"), warning("skipped", 54), "so"]
    assert expected == read(text, dialects=["gemma4"], limits=Limits(call=40))


def test_call_deltas_hold_the_arguments_as_json() -> None:
    text = olmo("f(a='it\\'s \"x\"', b=(True, None))")
    events = feed(list(text), call_deltas=True, **OLMO)
    pieces = [event.text for event in events if isinstance(event, CallDelta)]
    assert {"a": 'it\'s "x"', "b": [True, None]} == json.loads("".join(pieces))
    assert len(pieces) > 10


def test_dialects_write_words_as_their_templates_do() -> None:
    """Llama and LFM write the words of Python, OLMo those of JSON."""
    arguments = {"a": "x", "b": [True, None]}
    written = {each: DIALECTS[each].write_call("f", arguments) for each in ("pythonic", "olmo3_pythonic")}
    assert '[f(a="x", b=[True, None])]' == written["pythonic"]
    assert '<function_calls>f(a="x", b=[true,null])</function_calls>' == written["olmo3_pythonic"]
    result = DIALECTS["lfm2_pythonic"].write_result("f", "x")
    assert "<|tool_response_start|>x<|tool_response_end|>" == result


LOOSE = [
    ("an object with a number for a key", "{1: 'x'}", {"1": "x"}),
    ("an empty object", "{}", {}),
    ("an apostrophe", "'it's'", "it's"),
    ("a quoted word", "'sed -n '1,4p' x'", "sed -n '1,4p' x"),
    ("a call in quotes", '"print("hi")"', 'print("hi")'),
    ("quotes in quotes", '"sh -c "echo \'hi\'""', "sh -c \"echo 'hi'\""),
    ("a comma after a quote", '"He said "hi", then "bye", and left"', 'He said "hi", then "bye", and left'),
    ("a list in quotes", "'ls 'a', 'b''", "ls 'a', 'b'"),
    ("quotes in a list", '["a "b" c", "d"]', ['a "b" c', "d"]),
    ("quotes in an object", '{"k": "a "b" c", "l": "d"}', {"k": 'a "b" c', "l": "d"}),
    ("a lone bracket", '"("', "("),
    ("a bracket after an escaped back-slash", r"'\\[a-z] don't'", r"\[a-z] don't"),
    ("a bracket after a back-slash", r"'\] don't'", r"\] don't"),
    ("white space after a string", '"x" \n', "x"),
    ("much white space after a string", '"x"' + 300 * " ", "x"),
]


def test_lfm2_accepts_unescaped_quotes() -> None:
    """A quote ends a string if structure follows it. After an unescaped quote, the brackets must balance too."""
    with cases() as case:
        for name, text, value in LOOSE:
            with case(name):
                expected = [call("f", a=value, b=1), "!"]
                text = f"<|tool_call_start|>[f(a={text}, b=1)]<|tool_call_end|>!"
                assert expected == read(text, dialects=["lfm2_pythonic"])


@pytest.mark.parametrize("begin", ["{'", "{", "", "'b' "])
def test_lfm2_text_after_a_limit_is_not_stored(begin: str) -> None:
    parser = Parser(dialects=["lfm2_pythonic"], limits=Limits(call=100))
    parser.feed(f"<|tool_call_start|>[f(a={begin}")
    for _ in range(50):
        parser.feed("x" * 40)
    before = stored(parser)
    for _ in range(200):
        parser.feed("x" * 40)
    assert stored(parser) <= before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"{{'{'x' * 2000}': 1, 'b': 2}}", call("f", a={"x" * 2000: 1, "b": 2}), id="a long key"),
        pytest.param(f"{{'{'x' * 2000}', 'b'}}", error("unrecognised_tool_call"), id="a set of a long string"),
        pytest.param("1" * 2000, error("number_too_long"), id="a long number"),
    ],
)
def test_lfm2_long_values_do_not_depend_on_the_cut(text: str, expected: Brief) -> None:
    assert [expected] == read(f"<|tool_call_start|>[f(a={text})]<|tool_call_end|>", dialects=["lfm2_pythonic"])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{True: 1}", id="an invalid key"),
        pytest.param("{'a', 'b'}", id="a set"),
        pytest.param('"x), f(a="y"', id="a string that would hold another call"),
    ],
)
def test_lfm2_text_that_stays_ambiguous_is_an_error(text: str) -> None:
    """The text after the call is shown."""
    found = read(f"<|tool_call_start|>[f(a={text})]<|tool_call_end|>!", dialects=["lfm2_pythonic"])
    assert [error("unrecognised_tool_call"), "!"] == found
