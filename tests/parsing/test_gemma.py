"""Tests of the notation of the Gemma models: keys without quotes, and strings between tokens."""

from __future__ import annotations

from streamtools.limits import Limits
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import feed
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, read, thought, warning

GEMMA = {"dialects": ["gemma4"]}
FUNCTION_GEMMA = {"dialects": ["functiongemma"]}
f = call("f")
UNREADABLE = error("unrecognised_tool_call")


def gemma(inner: str) -> str:
    """Return a call of Gemma 4. A tilde stands for the mark around strings."""
    return f"<|tool_call>call:{inner}<tool_call|>".replace("~", '<|"|>')


@together(
    ("inner", "expected"),
    {
        "no arguments": ("f{}", f),
        "a string": ("f{a:~x~}", call("f", a="x")),
        "bare values": ("f{a:1,b:-2.5,c:true,d:null}", call("f", a=1, b=-2.5, c=True, d=None)),
        "strings without marks": ("f{a:Paris,b:[x y,z ]}", call("f", a="Paris", b=["x y", "z"])),
        "on several lines": ("f{a:[\n  {b:~x\n~},\n]\n}", call("f", a=[{"b": "x\n"}])),
        "a string in plain quotes": ('f{a:"x\\n",b:~y~}', call("f", a="x\n", b="y")),
        "a key in quotes, a key with a space": ("f{~a~:1,a b:2}", call("f", **{"a": 1, "a b": 2})),
    },
)
def test_a_call_is_between_two_tags(inner: str, expected: Brief) -> None:
    """In the notation of both models, with text around the call."""
    text = gemma(inner)
    assert [expected] == read(text, **GEMMA)
    assert ["So ", expected, expected, " and ", expected, "!"] == brief(feed([f"So {text}{text} and {text}!"], **GEMMA))
    other = text.replace("<|tool_call>", "<start_function_call>").replace("<tool_call|>", "<end_function_call>")
    if '<|" ' not in text:
        assert [expected] == read(other.replace('<|"|>', "<escape>"), **FUNCTION_GEMMA)


def test_the_closing_tag_in_a_string_is_text() -> None:
    assert [call("f", a="<tool_call|>")] == read(gemma("f{a:~<tool_call|>~}"), **GEMMA)


@together(
    ("inner", "expected"),
    {
        "a text without a mark that is too long": (f"f{{a:{'x' * 4096}}}", error("invalid_arguments")),
        "a quote in a text without a mark": ('f{a:5" x}', UNREADABLE),
        "not a number": ("f{a:NaN}", error("not_a_number")),
        "two closing braces": ("f{a:1}}", UNREADABLE),
        "half of a mark": ("f{a:<|x~}", UNREADABLE),
        "no comma": ("f{a:[~x~ ~y~]}", UNREADABLE),
        "no mark at the end of a string": ("f{a:~x}", error("truncated")),
    },
)
def test_a_malformed_call_is_hidden_up_to_its_closing_tag(inner: str, expected: Brief) -> None:
    assert [expected, "so"][: 1 + (expected != error("truncated"))] == read(gemma(inner) + "so", **GEMMA)


@together(
    ("text", "expected"),
    {
        "no closing tag": ("<|tool_call>call:f{}", [f, warning("missing_close")]),
        "half of the closing tag": ("<|tool_call>call:f{}\n<tool_", [f, warning("missing_close")]),
        "another opening tag": ("<|tool_call>call:f{} " + gemma("f{}"), [f, warning("missing_close"), f]),
        "cut before the brace": ("<|tool_call>call:f", [error("truncated")]),
        "a parenthesis": ("<|tool_call>call:f()", ["<|tool_call>call:f()"]),
    },
)
def test_a_call_without_its_closing_tag_is_accepted_at_the_end(text: str, expected: list[Brief]) -> None:
    """Without a name and a brace, it is text."""
    assert expected == read(text, **GEMMA)


@together(
    ("text", "expected"),
    {
        "a thought": ("<|channel>thought\nHm.<channel|>So.", [thought("Hm."), "So."]),
        "cut in the name": ("<|channel>tho", [thought("tho")]),
        "in the middle, unclosed": ("So. <|channel>Hm.", ["So. ", thought("Hm.")]),
        "a second closing tag": (gemma("f{}") + "<tool_call|>So.", [f, "So."]),
        "a tag in code": ("`<tool_call|>`", ["`<tool_call|>`"]),
    },
)
def test_tags_of_the_template_are_hidden(text: str, expected: list[Brief]) -> None:
    """Reasoning is reported separately."""
    assert expected == read(text, **GEMMA)


def test_a_call_over_the_limit_is_one_error_with_its_name() -> None:
    """The rest is skipped up to the closing tag."""
    text = gemma("f{a:[[1]]}") + "so"
    assert [error("too_deep"), warning("skipped", 17), "so"] == read(text, limits=Limits(depth=2), **GEMMA)


def test_results_have_the_notation_of_calls() -> None:
    """A result that is not an object gets a key."""
    write = DIALECTS["gemma4"].write_result
    assert '<|tool_response>response:f{a:<|"|>x<|"|>}<tool_response|>' == write("f", '{"a":"x"}')
    assert '<|tool_response>response:f{value:<|"|>x<|"|>}<tool_response|>' == write("f", "x")
    assert "<|tool_response>response:f{value:[1]}<tool_response|>" == write("f", "[1]")
