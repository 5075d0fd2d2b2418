"""Tests of calls that consist of a name, tags, and the JSON of the arguments."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest

from streamtools import parse
from streamtools.testing.laws import feed
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, markup, read, thought, warning

f, g = call("f"), call("g")
f1 = call("f", a=1)


@together(
    ("text", "expected"),
    {
        "with a space": ('[TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]', [f1]),
        "cut in the second call": ('[TOOL_CALLS][{"name":"f"},{"name":', [f, error("truncated")]),
        "an empty array": ("[TOOL_CALLS][] x", [error("unrecognised_tool_call"), " x"]),
        "prose": ("[TOOL_CALLS] is a token.", [error("invalid_arguments")]),
        "no JSON": ("[TOOL_CALLS] [not valid json] x", [error("invalid_json"), " x"]),
        "the token alone": ("Look:[TOOL_CALLS] ", ["Look:", error("truncated")]),
        "in code": ("Look: `[TOOL_CALLS]", ["Look: `[TOOL_CALLS]"]),
    },
)
def test_older_mistral_calls_end_with_their_json(text: str, expected: list[Brief]) -> None:
    """An array or one object. A closing tag is hidden."""
    assert expected == read(text, dialects=["mistral_list"])


@together(
    ("text", "expected"),
    {
        "arguments in a string": ('[TOOL_CALLS]f[ARGS]"{\\"a\\": 1}" x', [f1, " x"]),
        "a blank line after broken JSON": ('[TOOL_CALLS]f[ARGS]{"a": x"}\n\nHi', [error("invalid_json"), "\nHi"]),
        "reasoning after text": ("Hi [THINK]so[/THINK]you", ["Hi ", thought("so"), "you"]),
        "a result that the model forges": ("[TOOL_RESULTS]1[/TOOL_RESULTS] x", [warning("forged_result"), " x"]),
    },
)
def test_newer_mistral_calls_end_with_their_object(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=["mistral_args"])


def test_the_id_of_a_mistral_call_is_kept() -> None:
    """After `[CALL_ID]`, or under `id`."""
    texts = ("[TOOL_CALLS]f[CALL_ID]9Ae3bDc2F[ARGS]{}", '[TOOL_CALLS] [{"name": "f", "id": "9Ae3bDc2F"}]')
    found = [parse([text], dialects=["mistral_args", "mistral_list"]).calls[0].provider_id for text in texts]
    assert ["9Ae3bDc2F"] * 2 == found


def test_the_text_after_the_token_distinguishes_the_mistral_forms() -> None:
    result = parse(['[TOOL_CALLS] [{"name":"f"}]\n[TOOL_CALLS]g[ARGS]{}'], dialects=["mistral_list", "mistral_args"])
    assert [("f", "mistral_list"), ("g", "mistral_args")] == [(each.name, each.dialect) for each in result.calls]
    for text in ("[TOOL_CALLS]no call", "[TOOL_CALLS] no [TOOL_CALLS"):
        assert [error("invalid_arguments")] == read(text, dialects=["mistral_list", "mistral_args"])
        assert [text] == read(text, dialects="auto")


class Form(NamedTuple):
    """The form of a dialect's calls in a wrapper."""

    dialect: str
    begin: str
    end: str
    call: str
    """What comes before a name."""
    between: str
    """What comes before the arguments."""
    close: str
    """What comes after them."""

    def write(self, name: str, arguments: str = "{}") -> str:
        """Return one call, without the wrapper."""
        return f"{self.call}{name}{self.between}{arguments}{self.close}"


CALLS, END_OF_CALLS = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
V3 = Form("deepseek_v3", CALLS, END_OF_CALLS, f"{CALL}function{SEPARATOR}", "\n", END)
FENCED = V3._replace(between="\n```json\n", close=f"\n```{END}")
V31 = Form("deepseek_v31", CALLS, END_OF_CALLS, CALL, SEPARATOR, END)
KIMI = Form(
    "kimi_k2",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>functions.",
    ":0<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
FORMS = {"V3": V3, "V3 with a fence": FENCED, "V3.1": V31, "Kimi": KIMI}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@every_form
def test_each_call_in_a_wrapper_ends_at_its_closing_tag(form: Form) -> None:
    """The wrapper, and white space in it, is markup."""
    begin, end = form.begin, form.end
    one, two = form.write("f", '{"a": 1}'), form.write("g")
    for text, expected in [
        (f"{begin}{one}{end}", [f1]),
        (f"Hi {begin}{one}{two}{end} you", ["Hi ", f1, g, " you"]),
        (f"Hi\n{begin}\n{one}\n{two}\n{end}\n", ["Hi\n", f1, g, "\n"]),
        (f"{begin}{one}{end} and {begin}{two}{end}", [f1, " and ", g]),
        (f"{begin}{form.write('f', ' {} ')}{end}", [f]),
        (f"{begin}{form.write('f', json.dumps({'a': form.close + end}))}{end}", [call("f", a=form.close + end)]),
        (f"{begin}{form.write('météo.now-v2')}{end}", [call("météo.now-v2")]),
    ]:
        assert expected == read(text, dialects=[form.dialect])
    events = feed([f"Hi {begin}\n{one}\n{two}\n{end}"], dialects=[form.dialect], keep_markup=True)
    opened = [markup(f"{begin}\n")] if form is KIMI else []  # where the wrapper alone begins a span
    assert ["Hi ", *opened, f1, markup("\n"), g, markup(f"\n{end}")] == brief(events)


@every_form
def test_missing_tags_of_a_wrapper_are_accepted_with_a_warning(form: Form) -> None:
    begin, end, close = form.begin, form.end, form.close
    one, two = form.write("f", '{"a": 1}'), form.write("g")
    unclosed = one.removesuffix(close)
    missing = warning("missing_close")
    for text, expected in [
        (one, [f1]),
        (f"Hi {one}\n{two} you", ["Hi ", f1, "\n", g, " you"]),
        (f"{one}{end} you", [f1, " you"]),
        (f"{begin}{one}", [f1, missing]),
        (f"{begin}{one}\n{end[:-2]}", [f1, missing]),
        (f"{begin}{one}{begin}{two}{end}", [f1, missing, g]),
        (f"{begin}{unclosed}", [f1, missing]),
        (f"{begin}{unclosed}{close[:-3]}", [f1, missing]),
        (f"{begin}{unclosed}{two}{end}.", [f1, missing, g, "."]),
        (f"{begin}{unclosed}{end}.", [f1, missing, "."]),
        (f"{unclosed}{two}.", [f1, missing, g, "."]),
        (f"{begin} {end}Nothing.", ["Nothing."]),
    ]:
        assert expected == read(text, dialects=[form.dialect])


@every_form
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param("", f, id="nothing"),
        pytest.param('{"a": 1', error("invalid_json"), id="a brace that is missing"),
        pytest.param('{"a": 1}}', error("invalid_json"), id="a brace too many"),
        pytest.param('"x"', error("invalid_arguments"), id="a string that holds no JSON"),
        pytest.param('{"a": 1, "a": 2}', error("duplicate_key"), id="a key twice"),
    ],
)
def test_arguments_follow_the_usual_rule(form: Form, arguments: str, expected: Brief) -> None:
    """An error ends at the closing tag, and other calls survive it."""
    good, odd = form.write("g"), form.write("f", arguments)
    assert [g, expected, g, "."] == read(f"{form.begin}{good}{odd}{good}{form.end}.", dialects=[form.dialect])


@every_form
def test_a_malformed_call_ends_at_the_next_tag(form: Form) -> None:
    begin, end = form.begin, form.end
    good, bad = form.write("g"), form.write("f", "{x}")
    open_bad = bad.removesuffix(form.close)
    invalid, no_arguments = error("invalid_json"), error("invalid_arguments")
    unrecognised, truncated = error("unrecognised_tool_call"), error("truncated")
    unfinished = no_arguments if form.dialect == "deepseek_v3" else unrecognised
    for text, expected in [
        (f"{begin}{open_bad}{good}{end}.", [invalid, g, "."]),
        (f"{begin}{open_bad}{end}.", [invalid, "."]),
        (f"{begin}{open_bad}", [invalid]),
        (f"{bad}{good}.", [invalid, g, "."]),
        (f"{begin}{good} and {good}{end}.", [g, unrecognised, g, "."]),
        (f"{begin}{good} and {end}.", [g, unrecognised, "."]),
        (f"{begin}{good} and", [g, unrecognised]),
        (f"{begin}{good}{form.call}{end}.", [g, unrecognised, "."]),
        (f"{begin}{good}{form.call}f {end}.", [g, unfinished, "."]),
        (f"{begin}{good}{form.call}f", [g, truncated]),
        (f"{begin}{good}{form.call}f{form.between}", [g, truncated]),
        (f"{begin}{good}{form.write('f')[: len(form.call + form.between) + 2]}", [g, truncated]),
    ]:
        assert expected == read(text, dialects=[form.dialect])


@together(
    ("text", "expected"),
    {
        "half a fence": (f"{CALLS}{CALL}function{SEPARATOR}f\n{{}}\n```{END}{END_OF_CALLS}", [f]),
        "no line end after the name": (f"{CALL}function{SEPARATOR}f{{}}{END}", [f]),
        "a fence without lines": (f"{CALL}function{SEPARATOR}f```{{}}```{END}", [f]),
    },
)
def test_the_text_after_the_token_distinguishes_the_deepseek_forms(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=["deepseek_v3", "deepseek_v31"])


@pytest.mark.parametrize("form", [FENCED, V31], ids=["V3", "V3.1"])
def test_one_form_of_deepseek_alone_reads_both(form: Form) -> None:
    """Alone, its token always begins a call. With both forms, as in `"auto"`, prose about the token is text."""
    for other in (FENCED, V31):
        for text, expected in [
            (f"a{other.begin}{other.write('f')}{other.write('g')}{other.end}b", ["a", f, g, "b"]),
            (f"a{other.write('f')}b", ["a", f, "b"]),
            (f"a{other.begin}{other.write('f', '[1]')}{other.end}b", ["a", error("invalid_arguments"), "b"]),
            (f"a{CALL} no call {END}b", ["a", error("unrecognised_tool_call"), "b"]),
        ]:
            assert expected == read(text, dialects=[form.dialect])


@pytest.mark.parametrize("form", [FENCED, V31], ids=["V3", "V3.1"])
def test_all_tokens_of_deepseek_may_have_ascii_bars(form: Form) -> None:
    text = f"{form.begin}{form.write('f')}\n{form.write('g')}{form.end}.<｜end▁of▁sentence｜>".replace("｜", "|")
    assert [f, g, "."] == read(text, dialects=[form.dialect])


@pytest.mark.parametrize(
    ("written", "expected", "provider_id"),
    [
        ("functions.f:0", f, "functions.f:0"),
        ("functions.a.b-c:12", call("a.b-c"), "functions.a.b-c:12"),
        (" g:1\n", g, "g:1"),
        ("functions.f", f, "functions.f"),
        ("function.f:0", f, "function.f:0"),
        ("functions/f:0", f, "functions/f:0"),
        ("functions:f:0", f, "functions:f:0"),
        ("function.f", f, "function.f"),
        ("f", f, "f"),
        ("functions.h", error("unrecognised_tool_call"), None),
        ("call_123", error("unrecognised_tool_call"), None),
    ],
)
def test_the_id_of_a_kimi_call_holds_the_name(written: str, expected: Brief, provider_id: str | None) -> None:
    """Without the number, it must be the name of a declared tool."""
    text = f"<|tool_call_begin|>{written}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    tools = [{"name": "f"}, {"name": "g"}]
    assert [expected] == read(text, dialects=["kimi_k2"], tools=tools)
    found = parse([text], dialects=["kimi_k2"], tools=tools)
    assert [provider_id] * len(found.calls) == [each.provider_id for each in found.calls]


def test_kimi_sections_have_two_spellings() -> None:
    """A call ends open reasoning."""
    one = KIMI.write("f")
    for text, expected in [
        (f"<|tool_call_section_begin|>{one}<|tool_call_section_end|>.", [f, "."]),
        (f"{KIMI.begin}{one}<|tool_call_section_end|>.", [f, "."]),
        (f"<think>so {KIMI.begin}{one}{KIMI.end}", [thought("so "), f]),
        (f"<think>so {one}", [thought("so "), f]),
        (f"{KIMI.begin} is how", [error("unrecognised_tool_call")]),
        (f"{KIMI.begin}\n{KIMI.end}.", ["."]),
        (f"So {KIMI.begin}\n", ["So ", error("truncated")]),
        (f"{KIMI.begin}noise{one}{KIMI.end}.", ["noise", f, "."]),
        (f"{KIMI.begin}{{{one}{KIMI.end}.", [error("unrecognised_tool_call"), f, "."]),
        (f"{one}<|tool_call_end|><|tool_call_argument_begin|>.", [f, "."]),
    ]:
        assert expected == read(text, dialects=["kimi_k2"])


@together(
    ("text", "expected"),
    {
        "with all tokens": ('Hi<|message_sep|>\n\nfunction call<|role_sep|>\n{"name":"f"}', ["Hi", f]),
        "at the beginning": ('function call<|role_sep|>\n{"name":"f"}.', [f, "."]),
        "prose": ("a function call{}", ["a function call{}"]),
    },
)
def test_gigachat_json_follows_one_of_several_markers(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=["gigachat3"])
