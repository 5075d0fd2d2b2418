"""Tests of closing tags inside values, such as in files. A closing tag needs structure after it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.support.reading import call, error, read, warning

TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]


class Form(NamedTuple):
    """The form in which a dialect writes one value."""

    dialect: str
    begin: str
    close: str
    """The closing tag of the value."""
    end: str
    """What stands between that and the closing tag of the call."""
    close_call: str
    wraps: str = ""
    """What closes the wrapper of the calls."""
    end_of_turn: str = ""
    warns: bool = True

    def write(self, value: str) -> str:
        """Return a call with this value."""
        return self.begin + value + self.close + self.end + self.close_call + self.wraps


FORMS = [
    Form(
        "qwen3_coder_xml", "<tool_call>\n<function=f>\n<parameter=a>\n", "\n</parameter>", "\n</function>\n",
        "</tool_call>", end_of_turn="<|im_end|>",
    ),
    Form(
        "qwen3_coder_xml", "<function=f>\n<parameter=a>\n", "\n</parameter>", "\n", "</function>",
        end_of_turn="<|im_end|>", warns=False,
    ),
    Form(
        "seed_oss_xml", "<seed:tool_call>\n<function=f>\n<parameter=a>", "</parameter>", "\n</function>\n",
        "</seed:tool_call>", end_of_turn="<seed:eos>",
    ),
    Form(
        "glm_xml", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>", "</arg_value>", "\n", "</tool_call>",
        end_of_turn="<|user|>", warns=False,
    ),
    Form(
        "hunyuan_xml", "<tool_calls><tool_call>f<tool_sep><arg_key>a</arg_key><arg_value>", "</arg_value>", "",
        "</tool_call>", "</tool_calls>", warns=False,
    ),
    Form(
        "iquest_q1", "<iquest_tool_call>f\n<arg_key>a</arg_key>\n<arg_value>", "</arg_value>", "\n",
        "</iquest_tool_call>", warns=False,
    ),
    Form(
        "k2_horizon", "<ifm|tool_calls>\n<ifm|tool_call>f\n<ifm|arg_key>a</ifm|arg_key>\n<ifm|arg_value>",
        "</ifm|arg_value>", "\n", "</ifm|tool_call>", "</ifm|tool_calls>", warns=False,
    ),
    Form(
        "solar_open2", "<|tool_call:start|>f\n<|tool_arg:start|>a<|tool_arg:value|>", "<|tool_arg:end|>", "\n",
        "<|tool_call:end|>", warns=False,
    ),
    Form(
        "kimi_k3_xtml", '<|open|>call tool="f"<|sep|><|open|>argument key="a" type="string"<|sep|>',
        "<|close|>argument<|sep|>", "", "<|close|>call<|sep|>", "<|close|>tools<|sep|>", warns=False,
    ),
    Form(
        "anthropic_xml", '<function_calls>\n<invoke name="f">\n<parameter name="a">', "</parameter>", "\n", "</invoke>",
        "\n</function_calls>", warns=False,
    ),
    Form("minicpm5_xml", '<function name="f"><param name="a">', "</param>", "", "</function>", warns=False,
         end_of_turn="<|im_end|>"),
    Form(
        "minimax_m2_xml", '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">', "</parameter>", "\n",
        "</invoke>", "\n</minimax:tool_call>", end_of_turn="[e~[",
    ),
    Form(
        "deepseek_dsml", '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">',
        "</｜DSML｜parameter>", "\n", "</｜DSML｜invoke>", "\n</｜DSML｜tool_calls>",
        end_of_turn="<｜end▁of▁sentence｜>",
    ),
]  # fmt: skip

EVERY = pytest.mark.parametrize("form", FORMS, ids=[form.dialect for form in FORMS])


@EVERY
def test_a_closing_tag_before_prose_belongs_to_the_value(form: Form) -> None:
    """The same is true before another closing tag of the same kind."""
    tag, last = form.close.strip(), form.close_call
    for value in (f"x{tag} y", f"{tag}z", f"x {last} y", f"x{last}\n\ny", f"x{tag[:-1]}", f"{tag}\n{tag[:3]}"):
        expected = [call("f", a=value), " then"]
        assert expected == read(form.write(value) + " then", dialects=[form.dialect], tools=TOOLS), value


@EVERY
def test_the_tag_of_the_call_ends_an_unclosed_value(form: Form) -> None:
    """At the end of the message and before another call, but not before prose."""
    unclosed = [warning("missing_close")] if form.warns else []
    open_call = form.begin + "x"
    text = open_call + form.close_call
    options = {"dialects": [form.dialect], "tools": TOOLS}

    after = read(f"{text}\n", **options)
    assert [call("f", a="x"), *unclosed] == [each for each in after if each != "\n"][: 1 + len(unclosed)]
    if form.end_of_turn:
        assert [call("f", a="x"), *unclosed] == read(text + form.end_of_turn, **options)
    if not form.wraps:
        found = [each for each in read(f"{text}\n{form.write('y')}", **options) if each != "\n"]
        assert [call("f", a="x"), *unclosed, call("f", a="y")] == found
    else:
        assert [call("f", a="x")] == read(text + form.wraps, **options)
    assert [error("truncated")] == read(open_call + form.close, **options)


@EVERY
def test_a_call_with_an_unclosed_value_ends_at_its_last_tag(form: Form) -> None:
    """The call is an error, and the text after the tag is shown at the end of the message."""
    options = {"dialects": [form.dialect], "tools": TOOLS}
    open_call, tag, cut = form.begin + "x", form.close.strip(), error("truncated")
    for end in (tag, form.close_call, f"{tag} y{form.close_call}", f"{form.close_call}\n\ny{tag}"):
        assert [cut, " and so on"] == read(f"{open_call}{end} and so on", **options), end
        assert [cut, " and so on ", cut] == read(f"{open_call}{end} and so on {open_call}", **options)[:3], end
        assert [cut] == read(f"{open_call}{end}\n{tag[:-1]}", **options), end
        assert [cut] == read(f"{open_call}{end}\n{tag[0]}", **options), end


@EVERY
def test_no_value_takes_its_closing_tag_and_a_tag_that_fits_nothing(form: Form) -> None:
    """Either the value or the tags after it are wrong, so a call with such a value never runs. Models do both."""
    after = [form.close_call, "</function_invocation>", form.close_call + "</function_invocation>"]
    for stray in [*after, *(f"\n{tag}" for tag in after), form.end + form.close_call]:
        for end in (form.end + form.close_call + form.wraps, form.close_call):
            for rest in ("", " then", form.end_of_turn):
                text = form.begin + "x" + form.close + stray + end + rest
                events = read(text, dialects=[form.dialect], tools=TOOLS)
                calls = [each for each in events if each[0] == "call"]
                assert calls in ([], [call("f", a="x")]), (text, events)


def test_seed_values_keep_line_feeds() -> None:
    """A line feed after a value belongs to the tags only if one precedes the value."""
    begin, end = "<seed:tool_call><function=f><parameter=a>", "</parameter></function></seed:tool_call>"
    for written, value in [("x\n", "x\n"), ("x\n\n", "x\n\n"), ("\nx\n", "x"), ("\nx", "x"), ("\n", ""), ("", "")]:
        assert [call("f", a=value)] == read(begin + written + end, dialects=["seed_oss_xml"], tools=TOOLS), written
