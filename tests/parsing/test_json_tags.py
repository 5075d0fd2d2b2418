"""Tests of the dialects of JSON between two tags, or after one tag."""

from __future__ import annotations

import pytest

from streamtools.testing.laws import assert_chunk_invariant
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, raws, read, thought, warning

f, g = call("f"), call("g")
BROKEN, CUT, UNCLOSED = error("invalid_json"), error("truncated"), warning("missing_close")

TAGS = {
    "tool_calls_list": ("<tool_calls>", "</tool_calls>"),
    "ernie45_json": ("<tool_call>", "</tool_call>"),
    "lm_studio": ("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
}
BARE = {"granite_list": "<|tool_call|>", "functools_list": "functools", "xlam_json": "[TOOL_CALLS]"}


@pytest.mark.parametrize("dialect", TAGS)
def test_objects_and_arrays_between_tags_are_calls(dialect: str) -> None:
    """With text before, between and after. Errors end at the closing tag."""
    opening, closing = TAGS[dialect]
    for body, expected in [
        ('{"name":"f"}', [f]),
        ('\n{"name":"f"}\n{"name":"g"}\n', [f, g]),
        (' [{"name":"f"}, {"name":"g"}] ', [f, g]),
        ('[{"name":"f","arguments":{"a":"' + closing + '"}}]', [call("f", a=closing)]),
        ("[]", [error("unrecognised_tool_call")]),
        ('[{"name":"f"},{"name":x}]', [f, BROKEN]),
        ('[{"name":"f"}] so', [BROKEN]),
    ]:
        assert ["a ", *expected, " b"] == read(f"a {opening}{body}{closing} b", dialects=[dialect])
    assert [f, UNCLOSED] == read(opening + '[{"name":"f"}]' + closing[:-1], dialects=[dialect])
    assert [CUT] == read(opening + '[{"name":"f"', dialects=[dialect])
    assert [opening + "f" + closing] == read(opening + "f" + closing, dialects=[dialect])


@pytest.mark.parametrize("dialect", BARE)
def test_an_array_without_a_closing_tag_ends_with_its_json(dialect: str) -> None:
    """Malformed JSON ends at a blank line at the latest."""
    opening = BARE[dialect]
    for text, expected in [
        ('[{"name":"f"},{"name":"g"}] b', [f, g, " b"]),
        ('[ {"arguments":{"a":1},"name":"f"}]\n\nb', [call("f", a=1), "\n\nb"]),
        ('[{"name":"f"},{"name":x}] b', [f, BROKEN, " b"]),
        ('[{"name":"f"},{"name":"x\n\nb', [f, CUT]),
        ('[{"name":"f"}', [f, UNCLOSED]),
        ('[{"name":"f"},', [f, UNCLOSED]),
        ('[{"name":"f"},{', [f, CUT]),
    ]:
        assert ["a\n", *expected] == read(f"a\n{opening}{text}", dialects=[dialect])


@together(
    ("dialect", "text", "expected"),
    {
        "code is no call": ("internlm2", "<|action_start|><|interpreter|>\n1", ["<|action_start|><|interpreter|>\n1"]),
        "after indentation": ("functools_list", '  functools[{"name":"f"}]', ["  ", f]),
        "Cohere's plan and action": (
            "cohere_legacy_action",
            'Plan: x\nAction:\n```json\n[\n {"tool_name":"f","parameters":{"a":"```"}}\n]\n```\nb',
            ["Plan: x\n", call("f", a="```"), "\nb"],
        ),
        "another agent's action": ("cohere_legacy_action", "Action:\n```json\n{", ["Action:\n```json\n{"]),
        "Hunyuan's reasoning hold no calls, and its answer stands in a tag": (
            "hunyuan_a13b_list",
            '<think>\n<tool_calls>[{"name":"g"}]</tool_calls></think>\n<answer>a</answer><tool_calls>[{"name":"f"}]</tool_calls>',
            [thought('<tool_calls>[{"name":"g"}]</tool_calls>'), warning("call_in_reasoning"), "a", f],
        ),
        "ERNIE's response stands in a tag": (
            "ernie45_json",
            '<think>t</think>\n\n<response>\na\n</response>\n\n<tool_call>\n{"name":"f"}\n</tool_call>\n',
            [thought("t"), "a", f, "\n"],
        ),
    },
)
def test_forms_of_single_dialects(dialect: str, text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=[dialect])


@together(
    ("body", "expected"),
    {
        "arguments in a string": ('[ {\n"f" : "{\\"a\\":\\"\\\\u00e9\\"}" } ]', [call("f", a="é")]),
        "a bad one and a good one": ('[{"f":{"a":1,"a":1}},{"g":{}}]', [error("duplicate_key"), g]),
        "an empty name": ('[{"":{}},{"g":{}}]', [error("missing_tool_name"), g]),
        "no name": ('[{},{"g":{}}]', [BROKEN]),
        "a missing colon": ('[{"f" {}}]', [BROKEN]),
        "a missing comma": ('[{"f":{} "g":{}}]', [f, BROKEN]),
        "a colon for a comma": ('[{"f":{}:3}]', [f, BROKEN]),
        "a trailing comma": ('[{"f":{},}]', [f]),
        "no comma between two": ('[{"f":{}}{"g":{}}]', [f, BROKEN]),
    },
)
def test_apertus_writes_the_name_as_a_key(body: str, expected: list[Brief]) -> None:
    assert [*expected, " b"] == read(f"<|tools_prefix|>{body}<|tools_suffix|> b", dialects=["apertus_list"])


def test_a_call_under_its_name_is_complete_with_its_arguments() -> None:
    """The brackets around it may be missing."""
    for text, expected in [
        *(("[", [CUT]), ("[{", [CUT]), ('[{"f"', [CUT]), ('[{"f":', [CUT]), ('[{"f":{"a":', [CUT])),
        *(('[{"f":{}', [f, UNCLOSED]), ('[{"f":{}}', [f, UNCLOSED]), ('[{"f":{}},{"g', [f, CUT])),
    ]:
        assert expected == read("<|tools_prefix|>" + text, dialects=["apertus_list"])


def test_apertus_calls_end_its_reasoning() -> None:
    """At the end of a message."""
    thoughts, calls = "<|inner_prefix|>t", '<|tools_prefix|>[{"f":{}}]<|tools_suffix|>'

    assert [thought("t"), f] == read(thoughts + calls, dialects=["apertus_list"])
    assert [thought(f"t{calls}a"), warning("call_in_reasoning"), "b"] == read(
        f"{thoughts}{calls}a<|inner_suffix|>b", dialects=["apertus_list"]
    )


@together(
    ("body", "expected"),
    {
        "by another name": ('{"tool_calls":[{"function":{"name":"f"}}]}', [f]),
        "a call alone": ('{"tool":"f","arguments":{"tools":[1]}}', [call("f", tools=[1])]),
        "a call alone, another key first": ('{"note":"x","tool":"f"}', [f]),
        "a number": ('{"tools":[1,{"tool":"f"}]}', [error("unrecognised_tool_call"), f]),
        "a call alone and an array": ('{"tool":"f"}\n[{"tool":"g"}]', [f, g]),
        "null for the array": ('{"tools":null}', [error("missing_tool_name")]),
        "another key after it": ('{"tools":[{"tool":"f"}],"a":1}', [f]),
        "the wrong bracket": ('{"tools":[{"tool":"f"}]]', [f]),
        "no comma": ('{"tools":[{"tool":"f"} {"tool":"g"}]}', [f, BROKEN]),
        "an empty object": ("{}", [error("missing_tool_name")]),
    },
)
def test_a_container_holds_calls_under_a_key(body: str, expected: list[Brief]) -> None:
    """Between `JSON_BEGIN` and `JSON_END`. One call without a container is accepted too."""
    text = f"a\nJSON_BEGIN\n{body}\nJSON_END\nb"
    events = assert_chunk_invariant(text, [[text], list(text)], dialects=["json_begin_end"])

    assert ["a\n", *expected, "\nb"] == brief(events) == read(text, dialects=["json_begin_end"])


@pytest.mark.parametrize(
    "text", ["JSON_BEGIN\nno\nJSON_END", "a JSON_BEGIN\n{}", "JSON_BEGINS\n{}", "JSON_BEGIN\n[", "JSON_"]
)
def test_text_that_resembles_a_marker_is_shown(text: str) -> None:
    assert [text] == read(text, dialects=["json_begin_end"])


def test_calls_divide_the_text_of_their_container() -> None:
    text = '\nJSON_BEGIN\n{"tools":[{"tool":"f"},{"tool":"g"}]}\nJSON_END\n'

    assert ['JSON_BEGIN\n{"tools":[{"tool":"f"},', '{"tool":"g"}]}\nJSON_END'] == raws(
        text, dialects=["json_begin_end"]
    )
