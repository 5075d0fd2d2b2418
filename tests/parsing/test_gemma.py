"""Tests of the notation of the Gemma models: keys without quotes, and strings between tokens."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import Parser, parse
from streamtools.events import Call, Text
from streamtools.limits import Limits
from streamtools.parsing.bodies import gemma_calls
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import feed
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, read, thought, warning

GEMMA = {"dialects": ["gemma4"]}
FUNCTION_GEMMA = {"dialects": ["functiongemma"]}
f = call("f")
UNCLOSED = warning("missing_close")
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
        # A call without its closing tag is accepted at the end. Without a name and a brace, it is an error.
        "no closing tag": ("<|tool_call>call:f{}", [f, warning("missing_close")]),
        "half of the closing tag": ("<|tool_call>call:f{}\n<tool_", [f, warning("missing_close")]),
        "another opening tag": ("<|tool_call>call:f{} " + gemma("f{}"), [f, warning("missing_close"), f]),
        "cut before the brace": ("<|tool_call>call:f", [error("truncated")]),
        "a parenthesis": ("<|tool_call>call:f()", [UNREADABLE]),
        "no name": ("<|tool_call>So.", [error("truncated")]),
        # Tags of the template are hidden.
        "a thought": ("<|channel>thought\nHm.<channel|>So.", [thought("Hm."), "So."]),
        "cut in the name": ("<|channel>tho", [thought("tho")]),
        "in the middle, unclosed": ("So. <|channel>Hm.", ["So. ", thought("Hm.")]),
        "a second closing tag": (gemma("f{}") + "<tool_call|>So.", [f, "So."]),
        "a tag in code": ("`<tool_call|>`", ["`<tool_call|>`"]),
    },
)
def test_tags_of_the_template_are_hidden_and_may_be_missing(text: str, expected: list[Brief]) -> None:
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


# Looser forms.

TYPES = {"a": "string", "b": "string", "n": "integer", "t": "boolean", "l": "array", "o": "object"}
TOOLS = [{"name": "f", "parameters": {"properties": {key: {"type": name} for key, name in TYPES.items()}}}]
DECLARED: dict[str, Any] = {"dialects": ["gemma4"], "tools": TOOLS}


@together(
    ("inner", "expected"),
    {
        "quotes around quotes": ("f{a:~x = f(~~~ SELECT 1 ~~~)~}", call("f", a='x = f(""" SELECT 1 """)')),
        "only a quote": ("f{a:~~~}", call("f", a='"')),
        "empty strings": ("f{a:~~,l:[~~, ~~]}", call("f", a="", l=["", ""])),
        "three quotes": ("f{a:~~~~~}", call("f", a='"""')),
        "a quote at each end": ("f{a:~~x~~,b:~~~y~~~}", call("f", a='"x"', b='""y""')),
        "quotes and a comma": ("f{a:~f(~x~, ~y~)~,n:1}", call("f", a='f("x", "y")', n=1)),
        "JSON in a string": (
            "f{a:~{~name~: ~x~, ~list~: [~y~, ~z~]}~}",
            call("f", a='{"name": "x", "list": ["y", "z"]}'),
        ),
        "keys without quotes in a string": ("f{a:~{a: ~x~, b: ~y~}~,n:1}", call("f", a='{a: "x", b: "y"}', n=1)),
        "a call in a string": (
            "f{a:~<|tool_call>call:f{a:~x~}<tool_call|>~}",
            call("f", a='<|tool_call>call:f{a:"x"}<tool_call|>'),
        ),
        "two calls in a string": (
            "f{a:~<|tool_call>call:f{a:~x~}<tool_call|> and\n<|tool_call>call:f{b:~y~}<tool_call|> so~}",
            call("f", a='<|tool_call>call:f{a:"x"}<tool_call|> and\n<|tool_call>call:f{b:"y"}<tool_call|> so'),
        ),
        "an odd quote": ("f{a:~5~ pipe~,n:1}", call("f", a='5" pipe', n=1)),
        "an undeclared key in a string": ("f{a:~say ~x~, note: y~}", call("f", a='say "x", note: y')),
        "quotes in nested values": ("f{o:{l:[{x:~a ~b~~}]},n:1}", call("f", o={"l": [{"x": 'a "b"'}]}, n=1)),
        "no commas": ("f{a:~x~ b:~y~\nn:1 t:true}", call("f", a="x", b="y", n=1, t=True)),
        "no comma after an object": ("f{o:{x:~y~}n:2}", call("f", o={"x": "y"}, n=2)),
        "no comma after a text without marks": ("f{a:Paris b:~Rome~}", call("f", a="Paris", b="Rome")),
        "other separators": ("f{a=~x~,b: ~y~, n := 1,t=>false}", call("f", a="x", b="y", n=1, t=False)),
        "JSON": ('f{"a":"x\\n","l":[1,"y"],"o":{"z":null}}', call("f", a="x\n", l=[1, "y"], o={"z": None})),
        "keys in quotes": ('f{"a":~x~,"b":~y~ "n":1}', call("f", a="x", b="y", n=1)),
        "keys in marks": ("f{~a~:~x~,~b~:~say ~x~~}", call("f", a="x", b='say "x"')),
        "some keys in marks": ('f{"a":~x~,~b~:~y~,n:1}', call("f", a="x", b="y", n=1)),
        "a key in marks after a string with quotes": (
            "f{~c d~:~say ~x~~,~e: f~:~y~,n:1}",
            call("f", **{"c d": 'say "x"', "e: f": "y", "n": 1}),
        ),
        "a word": ("f{b:NaN,o:{x:NaN}}", call("f", b="NaN", o={"x": "NaN"})),
        "single quotes": ("f{a:'x',n:1}", call("f", a="x", n=1)),
        "no mark at the beginning of a string": ("f{a:ls -la~,b:x~}", call("f", a="ls -la", b="x")),
        "types": ("f{a:5,b:null,n:5,t:true}", call("f", a="5", b="null", n=5, t=True)),
        "types of marks": ("f{a:~5~,n:~5~,t:~true~}", call("f", a="5", n="5", t="true")),
        "a time and an address": ("f{a:10:30,b:http://x.y/z}", call("f", a="10:30", b="http://x.y/z")),
        "namespaces": ("default_api:mcp:f{}", f),
        "namespaces with dots": ("a.b/f{n:1}", call("f", n=1)),
        "an undeclared name": ("default_api:g{a:1}", call("g", a=1)),
        "spaces": (" f {a:1}", call("f", a="1")),
    },
)
def test_looser_forms_are_read(inner: str, expected: Brief) -> None:
    assert [expected] == read(gemma(inner), **DECLARED)


@together(
    "inner",
    [
        "f{a:~x}", "f{a:~x,b:~y~}", "f{a:~x b:~y~}", "f{a:~x~b:~y~}", "f{l:[~x~ ~y~]}", "f{a:~:( ~x~ y~}", "f",
        "f{a:~x~,,n:1}", "f{a:x, y~}", "f{a ~x~}", "f{a:}", "f{:1}", "f(a=1)", "", "f g{a:1}", "f{a:~x~}}", "f{a:~x~",
        "f{l:[~SELECT ~x~, ~y~ FROM z~]}", "f{a:~SELECT ~x~, b: ~y~ FROM z~}", "f{l:[~x,~y~]}",
        "f{a:echo x, b:y~}", "f{a:cd x && b:y}", "f{a:echo x:y,c:z}", "f{a:~say ~x~, b: no~}",
        "f{a:~x~]}", 'f{"a:1}', 'f{"a\':1}', "f{~a:~x~}",
    ],
)  # fmt: skip
def test_an_ambiguous_or_broken_call_never_runs(inner: str) -> None:
    """Nothing of it is shown. Another call after it runs only if it is certain where the first one ends."""
    for text in (gemma(inner), gemma(inner) + "<turn|>", gemma(inner) + gemma("f{n:1}")):
        first, *others = read(text, **DECLARED)
        assert "error" == first[0]
        assert others in ([], [call("f", n=1)])


@together(
    "inner",
    ["f{a:~x = {~y~: ~z~}", "f{a:~x ~y~}", "f{l:[~x ~y~]}", "f{o:{x:~y ~z~}}", "f{a:~x ~y~,n:1}", "f{a:~x ~y~}}"],
)
def test_a_call_that_is_cut_after_a_quote_never_runs(inner: str) -> None:
    """The string has an odd number of quotes, and the last of them is followed by the characters that end a call."""
    for end in ("", "<turn|>", "\n", "<tool_ca"):
        for text in (gemma(inner).removesuffix("<tool_call|>") + end, gemma(inner)[len("<|tool_call>") : -12] + end):
            for cut in ([text], list(text), [text[at : at + 3] for at in range(0, len(text), 3)]):
                events = feed(cut, **DECLARED)
                assert not any(isinstance(event, Call) for event in events), text


@pytest.mark.parametrize("dialect", ["gemma4", "functiongemma"])
def test_calls_in_a_string_never_run_and_never_shorten_it(dialect: str) -> None:
    """The string contains marks that are not escaped, in whole calls and in parts of calls."""
    write = DIALECTS[dialect].write_call
    one, other = write("f", {"a": "x"}), write("f", {"b": "y"})
    mark = '<|"|>' if dialect == "gemma4" else "<escape>"
    tail = one[one.index(mark) :]
    for value in (one, one + other, f"{one} so\n{other}", tail, one + tail, tail + other, one.replace("x", other)):
        for arguments in ({"a": "TEXT"}, {"a": "TEXT", "n": 1}, {"n": 1, "a": "TEXT"}):
            text = write("f", arguments).replace("TEXT", value) + "Done."
            whole = {**arguments, "a": value.replace(mark, '"')}
            for cut in ([text], list(text), [text[at : at + 3] for at in range(0, len(text), 3)]):
                parser = Parser(dialects=[dialect], tools=TOOLS)
                shown = [event for delta in cut for event in parser.feed(delta)] + parser.close()
                assert [each.arguments for each in parser.calls] in ([], [whole]), text
                assert "<" not in "".join(each.text for each in shown if isinstance(each, Text)), text


@together(
    ("text", "expected"),
    {
        "no word": (gemma("f{n:1}").replace("call:", ""), [call("f", n=1)]),
        "only a colon": (gemma("f{n:1}").replace("call:", ":"), [call("f", n=1)]),
        "JSON": ('<|tool_call>{"name": "f", "arguments": {"n": 1}}<tool_call|>', [call("f", n=1)]),
        "no tag": ("call:f{n:1}", [call("f", n=1), UNCLOSED]),
        "a closing tag": ("call:api:f{n:1}<tool_call|>", [call("f", n=1)]),
        "no tag after reasoning": (
            "<|channel>thought\nHm.<channel|>call:f{n:1}<turn|>", [thought("Hm."), call("f", n=1), UNCLOSED]
        ),
        "reasoning without its tag": ("thought\nHm.<channel|>So.", [thought("Hm."), "So."]),
        "text around": (
            'So.\ncall:f{a:<|"|>x<|"|>}\nSo.', ["So.\n", call("f", a="x"), UNCLOSED, "So."]
        ),
        "in a line": ("So call:f{n:1}", ["So call:f{n:1}"]),
        "not declared": ("call:g{n:1}", ["call:g{n:1}"]),
        "a result": (gemma("f{n:1}").replace("<tool_call|>", "<|tool_response>"), [call("f", n=1), UNCLOSED]),
    },
)  # fmt: skip
def test_openings_and_ends(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, **DECLARED)


@together("head", ["call:f", ":f", "f", "call:api:f", "call:api.f", "call: f", "call:f "])
def test_the_default_reads_the_same_openings(head: str) -> None:
    assert [call("f", n=1)] == read(f"<|tool_call>{head}{{n:1}}<tool_call|>", tools=TOOLS)


FRAGMENTS = ('"', '"', '""', "x", "note", " ", ": ", ", ", "{", "}", "[", "]", "(", ")", "\n")
# A quote and a key after a comma or white space are the end of the string.
_next_member = re.compile(r'"(?:\s*,\s*|\s+)[^\W\d][\w.-]*\s*[:=]').search


def _wrong_value(text: str) -> object:
    """Return the arguments if a string with quotes is wrong. None if it is right, or if the call is an error."""
    for inner in ("f{a:~TEXT~,n:1}", "f{n:1,a:~TEXT~}", "f{n:1,o:{x:~TEXT~}}"):
        for event in parse(gemma(inner.replace("TEXT", text.replace('"', "~"))), **DECLARED).events:
            if isinstance(event, Call):
                arguments = event.call.arguments
                if text not in (arguments.get("a"), arguments.get("o", {}).get("x")):
                    return arguments
    return None


@given(st.lists(st.sampled_from(FRAGMENTS)).map("".join).filter(lambda text: not _next_member(text)))
def test_a_string_with_quotes_is_whole_or_an_error(text: str) -> None:
    assert _wrong_value(text) is None


def test_the_law_catches_a_mark_that_always_ends_a_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemma_calls._Arguments, "_reject", lambda _: True)

    assert _wrong_value('x" note: y') is not None


KEYS = st.sampled_from(["a", "n", "c d", "e: f", "9", "", '"q"', "x-y"])
VALUES = st.sampled_from(
    ["x", "a, b: c", 'say "x"', "", '"', "{", '{"k": "v", "n": 1}', 1, None, [1, "u", 'q"r'], {"n": "y", "c d": "z"}]
)


@given(st.dictionaries(KEYS, VALUES, min_size=1, max_size=4), st.booleans())
def test_written_arguments_with_any_keys_are_read(arguments: dict[str, Any], declared: bool) -> None:
    tools = [{"name": "f", "parameters": {"properties": {"a": {}, "n": {}}}}] if declared else None
    text = DIALECTS["gemma4"].write_call("f", arguments)
    assert [call("f", **arguments)] == brief(feed([text], tools=tools, **GEMMA))
