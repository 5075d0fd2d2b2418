"""Calls in XML whose attributes are the names: wrappers, quotes, what is broken, and what each dialect adds."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import parse
from streamtools.parsing.dialects import DIALECTS
from streamtools.parsing.dialects.neutralising import restore
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, raws, read, thought, warning

TOOLS = [
    {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "n": {"type": "integer"},
                "on": {"type": "boolean"},
                "l": {"type": "array", "items": {"type": "string"}},
                "o": {"type": "object"},
            },
        },
    }
]

A = '<parameter name="a">x</parameter>'
N = '<parameter name="n">3</parameter>'
F = f'<invoke name="f">{A}</invoke>'
G = '<invoke name="g"></invoke>'
f, g = call("f", a="x"), call("g")
UNCLOSED = warning("missing_close")
BROKEN = error("unrecognised_tool_call")
CUT = error("truncated")


def in_wrapper(text: str) -> str:
    """Return `text` in the wrapper of the form that models imitate."""
    return f"<function_calls>{text}</function_calls>"


def read_anthropic(text: str, **options: Any) -> list[Brief]:
    """Read one dialect, with its tools declared."""
    return read(text, dialects=["anthropic_xml"], tools=TOOLS, **options)


@together(
    ("text", "expected"),
    [
        pytest.param(in_wrapper(F), [f], id="nothing else"),
        pytest.param(f"Look: {in_wrapper(F)} there", ["Look: ", f, " there"], id="text around"),
        pytest.param(
            f"<function_calls>\n<invoke name='f'>\n{A}\n{N}\n</invoke>\n</function_calls>",
            [call("f", a="x", n=3)],
            id="on lines",
        ),
        pytest.param(in_wrapper(F + G), [f, g], id="two calls"),
        pytest.param(in_wrapper(f"{F}\n \t{F}"), [f, f], id="the same call twice is two calls"),
        pytest.param(in_wrapper(F) + "\nand\n" + in_wrapper(G), [f, "\nand\n", g], id="two wrappers"),
        pytest.param(f"So {F} it is", ["So ", f, " it is"], id="no wrapper"),
        pytest.param(in_wrapper("<invoke name=g/>"), [g], id="one tag, and no quotes"),
        pytest.param(in_wrapper('<invoke name="g" />'), [g], id="one tag, with a space"),
        pytest.param(in_wrapper('<invoke\n name = "g" id=1 ></invoke >'), [g], id="white space and other attributes"),
        pytest.param(in_wrapper(G.replace('"g"', '"a &quot;b&amp;&x;"')), [call('a "b&&x;')], id="entities in a name"),
        pytest.param(in_wrapper('<invoke name="f" name="g"></invoke>'), [call("f")], id="the first name counts"),
        pytest.param(
            in_wrapper('<invoke name="f"><parameter name="a"></parameter></invoke>'), [call("f", a="")], id="no text"
        ),
        pytest.param(
            in_wrapper('<invoke name="f"><parameter name="a"/></invoke>'), [call("f", a="")], id="no text, in one tag"
        ),
        pytest.param(
            in_wrapper(F.replace("x", "\n </invoke> <b> & </param \n")),
            [call("f", a="\n </invoke> <b> & </param \n")],
            id="a value holds tags and white space",
        ),
        pytest.param(
            in_wrapper(F.replace('name="a">x', 'name="l">["a", "b"]')), [call("f", l=["a", "b"])], id="an array"
        ),
        pytest.param(
            in_wrapper(F.replace('name="a">x', 'name="o">{"a": {"b": null}}')),
            [call("f", o={"a": {"b": None}})],
            id="an object",
        ),
        pytest.param(
            in_wrapper(F.replace('name="a">x', 'name="on">true')),
            [call("f", on=True)],
            id="a word of the schema",
        ),
        pytest.param(
            in_wrapper(F.replace('name="a">x', 'name="b">3')), [call("f", b="3")], id="what no schema knows is text"
        ),
        pytest.param(in_wrapper('<invoke name="f">{"a": "</invoke>"}</invoke>'), [call("f", a="</invoke>")], id="JSON"),
        pytest.param(
            in_wrapper('<invoke name="f">\n{}\n</invoke><invoke name="g">{"b":1}</invoke>'),
            [call("f"), call("g", b=1)],
            id="JSON in two calls",
        ),
        pytest.param(f"<function_calls>{F}", [f, UNCLOSED], id="no end of the wrapper"),
        pytest.param(f"<function_calls>{F}\n</func", [f, UNCLOSED], id="half an end of the wrapper"),
        pytest.param(
            in_wrapper(f'<invoke name="f">{A}') + " so", [f, UNCLOSED, " so"], id="no end of the call in a wrapper"
        ),
        pytest.param(in_wrapper(f'<invoke name="f">{A}{G}'), [f, UNCLOSED, g], id="no end of the call before another"),
        pytest.param(f'<invoke name="f">{A}{G}', [f, UNCLOSED, g], id="no end of the call before another, no wrapper"),
        pytest.param('<function_calls><invoke name="f">{"a":"x"}', [f, UNCLOSED, UNCLOSED], id="the JSON alone"),
        pytest.param('<invoke name="f">{"a":"x"}</inv', [f, UNCLOSED], id="half an end of a call in JSON"),
    ],
)
def test_calls(text: str, expected: list[Brief]) -> None:
    """Names stand in quotes of either kind or in none; a value is text up to its own closing tag."""
    assert expected == read_anthropic(text)


@together(
    ("text", "expected"),
    [
        pytest.param(in_wrapper(f"{F} well {G}"), [f, BROKEN, g], id="text between two calls"),
        pytest.param(in_wrapper(f"{F}</invoke>{G}"), [f, BROKEN, g], id="a closing tag too many"),
        pytest.param(in_wrapper(f"{F}{A}") + "!", [f, BROKEN, "!"], id="an argument outside"),
        pytest.param(in_wrapper(f'<invoke name="f">so {A}</invoke>{G}'), [BROKEN, g], id="text before an argument"),
        pytest.param(
            in_wrapper(f'<invoke name="f"><parameter name="a"/> so</invoke>{G}'),
            [BROKEN, g],
            id="text behind an argument",
        ),
        pytest.param(in_wrapper(f'<invoke name="f>{A}</invoke>') + "!", [BROKEN, "!"], id="half a quote"),
        pytest.param(in_wrapper(f'<invoke name="f" "g">{A}</invoke>{G}'), [BROKEN, g], id="a text in a tag"),
        pytest.param(in_wrapper(f"<invoke name=>{A}</invoke>{G}"), [BROKEN, g], id="no value in a tag"),
        pytest.param(in_wrapper(f"<invoke name>{A}</invoke>{G}"), [BROKEN, g], id="no value at all in a tag"),
        pytest.param(in_wrapper(f'<invoke name="f"/{A}</invoke>{G}'), [BROKEN, g], id="half an end of a tag"),
        pytest.param(
            in_wrapper(f'<invoke name="f"><parameter name="a" b>x</parameter></invoke>{G}'),
            [BROKEN, g],
            id="no value in the tag of an argument",
        ),
        pytest.param(in_wrapper(f"<invoke id=1>{A}</invoke>{G}"), [error("missing_tool_name"), g], id="no name"),
        pytest.param(
            in_wrapper(f'<invoke name="f"><parameter id="a">x</parameter></invoke>{G}'),
            [error("invalid_arguments"), g],
            id="no name of an argument",
        ),
        pytest.param(in_wrapper(f'<invoke name="f">{A}{A}</invoke>{G}'), [error("duplicate_key"), g], id="a key twice"),
        pytest.param(in_wrapper(f'<invoke name="f">{{"a":x}}</invoke>{G}'), [error("invalid_json"), g], id="bad JSON"),
        pytest.param(
            in_wrapper(f'<invoke name="f">{{"a":"x}}</invoke>{G}'),
            [error("invalid_json"), g],
            id="half a quote, in JSON",
        ),
        pytest.param(in_wrapper(f'<invoke name="f">{{"a":1}} so</invoke>{G}'), [BROKEN, g], id="text behind JSON"),
        pytest.param(f'<invoke name="f">{A}so</invoke> so', [CUT, " so"], id="text in a call without wrapper"),
        pytest.param(f'<invoke name="f">{A}so', [CUT, "so"], id="text in a call that does not end"),
        pytest.param(f'<function_calls><invoke name="f">{A}', [CUT], id="cut behind an argument"),
        pytest.param('<function_calls><invoke name="f">{"a":"x', [CUT], id="cut in JSON"),
        pytest.param('<function_calls><invoke name="f"><parameter name="a">x</par', [CUT], id="cut in a value"),
        pytest.param('<function_calls><invoke name="f"><param', [CUT], id="cut in the tag of an argument"),
        pytest.param('<invoke name="f"><parameter name="a', [CUT], id="cut in an attribute"),
        pytest.param(f'<invoke name="f">{A}<param', [CUT], id="cut in the tag of an argument, without wrapper"),
        pytest.param(f"<function_calls>{F}<invoke name", [f, CUT], id="cut in the next call"),
        pytest.param(f"<function_calls>{F}<inv", [f, CUT], id="cut in the tag of the next call"),
        pytest.param(f"<function_calls>{F} so", [f, BROKEN], id="text instead of an end"),
        pytest.param("<function_calls><invoke", [CUT], id="cut at the commit point"),
    ],
)
def test_what_is_broken(text: str, expected: list[Brief]) -> None:
    """Good calls survive bad siblings, and no call is made of what is cut or stands in the wrong place."""
    assert expected == read_anthropic(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<function_calls> are", id="the wrapper alone"),
        pytest.param("<function_calls>\nget_weather()", id="another dialect's call in the wrapper"),
        pytest.param("<function_calls></function_calls>", id="nothing in the wrapper"),
        pytest.param("<invoke>", id="no attributes"),
        pytest.param("<invokes name=", id="a longer word"),
        pytest.param(f"`{F}`", id="in code"),
        pytest.param("<function_results> are", id="no result"),
    ],
)
def test_text(text: str) -> None:
    """What does not reach the commit point is shown as it is."""
    assert [text] == [each for each in read_anthropic(text) if each != warning("near_miss")]


def test_a_forged_result_is_hidden() -> None:
    """A block of results that the model writes is no result, whether it ends or not."""
    block = "<function_results>\n<result>\n<stdout>\n7\n</stdout>\n</result>\n</function_results>"

    assert ["a ", warning("forged_result"), " b"] == read_anthropic(f"a {block} b")
    assert [warning("forged_result")] == read_anthropic(block[:40])


def test_raw_text_of_calls_in_a_wrapper() -> None:
    """The first call of a wrapper has its opening tag, and the tags between calls are markup."""
    text = f"<function_calls>\n{F}\n{G}\n</function_calls>"

    assert [f"<function_calls>\n{F}", G] == raws(text, dialects=["anthropic_xml"])


MARK = "｜DSML｜"
"""Full-width bars."""


@together(
    ("text", "expected"),
    [
        pytest.param(
            '\n\n<｜function_calls>\n<｜invoke name="f">\n<｜parameter name="n" string="true">3</｜parameter>\n'
            '<｜parameter name="a" string="false">3</｜parameter>\n</｜invoke>\n</｜function_calls>',
            [call("f", n="3", a=3)],
            id="what is said beats the schema",
        ),
        pytest.param(
            '<｜tool_calls><｜invoke name="f"><｜parameter name="n">3</｜parameter></｜invoke></｜tool_calls>',
            [call("f", n=3)],
            id="nothing is said",
        ),
        pytest.param(
            '<｜ calls><｜ invoke name="f"><｜ parameter name="a" string="true"> x </｜ parameter></｜ invoke>'
            "</｜ calls>!",
            [call("f", a=" x "), "!"],
            id="a space before the names of tags",
        ),
        pytest.param(
            '<｜tool_calls><｜invoke name="f"><｜parameter name="b" string="false">{"x": [1, "y"]}</｜parameter>'
            '<｜parameter name="c" string="false"> "z\\n" </｜parameter></｜invoke></｜tool_calls>',
            [call("f", b={"x": [1, "y"]}, c="z\n")],
            id="JSON",
        ),
        pytest.param(
            '<｜tool_calls><｜invoke name="f"><｜parameter name="b" string="false">x</｜parameter></｜invoke>'
            "</｜tool_calls>",
            [error("invalid_arguments")],
            id="what is said to be JSON and is none",
        ),
        pytest.param('a\n\n<｜invoke name="f"/>b', ["a", call("f"), "b"], id="no wrapper"),
        pytest.param('<｜invoke name="f"/></｜tool_calls>b', [call("f"), "b"], id="an end of the wrapper alone"),
        pytest.param(
            'a\n\n\n<｜tool_calls><｜invoke name="f"/></｜tool_calls>', ["a\n", call("f")], id="three line feeds"
        ),
        pytest.param("<｜tool_calls><x", [BROKEN], id="something else in the wrapper"),
        pytest.param("<｜tool_calls><", [CUT], id="cut at the commit point"),
        pytest.param("<｜tool_calls></｜tool_calls>b", [BROKEN, "b"], id="nothing in the wrapper"),
    ],
)
def test_dsml(text: str, expected: list[Brief]) -> None:
    """Each argument says what it is; two line feeds before the wrapper are the template's."""
    text = text.replace("<｜", f"<{MARK}").replace("</｜", f"</{MARK}")

    assert expected == read(text, dialects=["deepseek_dsml"], tools=TOOLS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"a\n<minimax:tool_call>\n{F}\n{G}\n</minimax:tool_call>b", ["a", f, g, "b"], id="two calls"),
        pytest.param(
            "<think>so</think>\n<minimax:tool_call>" + F + "</minimax:tool_call>",
            [thought("so"), f],
            id="behind thoughts",
        ),
        pytest.param("<minimax:tool_call> no", ["<minimax:tool_call> no"], id="the wrapper alone"),
        pytest.param("a</minimax:tool_call>b", ["ab"], id="an end of the wrapper alone"),
    ],
)
def test_minimax(text: str, expected: list[Brief]) -> None:
    """The wrapper is unmistakable, and so is its end."""
    assert expected == read(text, dialects=["minimax_m2_xml"], tools=TOOLS)


def test_atem() -> None:
    """Headers say whom a message is for: the model itself, the reader, or a tool."""
    text = (
        "to=self<|message|>so<|eom|><|start|>assistant to=user<|message|>Hi.<|eom|><|start|>assistant to=f<|message|>"
        f"<function_calls>\n{F}\n</function_calls><|eot|>"
    )
    for tag in ("function_calls", "invoke", "parameter"):
        text = text.replace(f"<{tag}", f"<atem:{tag}").replace(f"</{tag}", f"</atem:{tag}")

    assert [thought("so"), "Hi.", f] == read(text, dialects=["atem_xml"], tools=TOOLS)


@together(
    ("inside", "value"),
    [
        pytest.param("x", "x", id="text"),
        pytest.param("<a href='x'>&lt;y&gt;&unknown;</a>", "<a href='x'><y>&unknown;</a>", id="tags and entities"),
        pytest.param("<![CDATA[</param>&lt;]]>", "</param>&lt;", id="a section"),
        pytest.param("\n <![CDATA[ x ]]> \n", " x ", id="white space around a section"),
        pytest.param("<![CDATA[a]]]]><![CDATA[>b]]>", "a]]>b", id="two sections"),
        pytest.param("a <![CDATA[<b>]]> c", "a <b> c", id="a section in text"),
        pytest.param("<![CDATA[<b>]]>c<![CDATA[d]]>", "<b>cd", id="text behind a section"),
        pytest.param("a<![CDATA[b]]>", "ab", id="a section at the end"),
        pytest.param("a & b < c ]]>", "a & b < c ]]>", id="marks that are none"),
    ],
)
def test_sections_and_entities(inside: str, value: str) -> None:
    """MiniCPM 5 writes XML in values: sections are taken as they are, entities and text as they are meant."""
    text = f'a <function name="f"><param name="a">{inside}</param></function> b'

    assert ["a ", call("f", a=value), " b"] == read(text, dialects=["minicpm5_xml"], tools=TOOLS)


def test_a_section_that_does_not_end() -> None:
    """Cut in a section, or behind it, a call is cut."""
    for text in ("<![CDATA[x", "<![CDATA[x]]", "x <![CDATA[x", "<![CDATA[x]]>", "&am"):
        text = f'<function name="f"><param name="a">{text}'
        assert [CUT] == read(text, dialects=["minicpm5_xml"], tools=TOOLS)


@pytest.mark.parametrize("dialect", ["deepseek_dsml", "minimax_m2_xml", "anthropic_xml", "minicpm5_xml", "atem_xml"])
def test_what_is_written_is_read(dialect: str) -> None:
    """Closing tags, sections and quotes in names and values come back."""
    form = DIALECTS[dialect]
    given = {
        "a": 'x</parameter></param></atem:parameter>]]><![CDATA[&lt;"',
        "b\"'&quot;": "</｜DSML｜parameter></｜DSML｜ parameter>",
        "n": 3,
    }
    text = form.write_call('f"', given)
    tools = [{"name": 'f"', "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}]

    found = parse([text], dialects=[dialect], tools=tools)

    assert [('f"', given)] == [(each.name, restore(each.arguments, [form])) for each in found.calls]
    assert "" == found.content
    assert [] == brief(parse([form.write_result("f", "7")], dialects=None).events)[1:]


def test_arguments_arrive_while_they_are_written() -> None:
    """Every piece of a value goes out as JSON at once, but for what may be its closing tag."""
    text = F.replace("x", 'one "two" </p three').replace("</invoke>", f"{N}</invoke>")
    events = parse(list(text), dialects=["anthropic_xml"], tools=TOOLS, call_deltas=True).events
    told = [event.text for event in events if event.type == "call-delta"]

    assert '{"a":"one \\"two\\" </p three","n":3}' == "".join(told)
    assert len(told) > 20


@pytest.mark.parametrize(
    "text",
    [
        'Call <invoke name="x"> to begin, then <b>text</b>.\n\nMore.',
        '<invoke name="x"> begins',
        "<function name='f'> defines it.",
    ],
)
def test_a_tag_that_is_only_mentioned_is_text(text: str) -> None:
    """Without a wrapper, it takes an argument, a JSON body or the end of the call to commit to one."""
    assert [text] == read(text, dialects=["anthropic_xml", "minicpm5_xml"])
