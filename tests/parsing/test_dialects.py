"""Tests of the table of dialects, and of custom dialects: their parts, instructions and errors."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any

import pytest

import streamtools
from streamtools import parse
from streamtools.parsing import (
    BLANKS,
    DIALECTS,
    LINE_END,
    SPACES,
    Dialect,
    NearMiss,
    OneOf,
    Opener,
    Some,
    Span,
    Tag,
    dialects_for,
    json_calls,
)
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.dialects.neutralizing import restore
from tests.support.cases import together

CALL = {"city": "Paris"}


def write_call(name: str, arguments: dict[str, Any]) -> str:
    """Return a call of the custom dialect."""
    return f"@call {json.dumps({'name': name, 'arguments': arguments})} @end"


def house(*openers: Opener, **fields: Any) -> Dialect:
    """Return a custom dialect."""
    mine = openers or (Opener(("@call", BLANKS), json_calls("@end"), ahead=("{",)),)
    return Dialect(fields.pop("id", "house"), mine, write_call, lambda name, text: f"@result {name} {text}", **fields)


def test_a_custom_dialect_reads_what_it_writes() -> None:
    """Alone, and together with the dialects of the table."""
    text = f'So: {write_call("now", CALL)} and ###:{{"name": "then"}}'

    sets: list[Dialects] = [house(), [house()], [house(), "tilde_fence"]]
    for dialects in sets:
        (call,) = parse(text, dialects=dialects).calls
        assert ("now", CALL, "house") == (call.name, call.arguments, call.dialect)
    assert ["now", "then"] == [call.name for call in parse(text, dialects=[house(), "hash_marker"]).calls]


def test_a_custom_grammar_is_a_generator() -> None:
    """Its marker has all kinds of parts, and it has a tag and a near miss."""

    def body(span: Span) -> Generator[None, None, None]:
        span.set_name("now")
        yield from span.arguments()
        span.close()

    opener = Opener(("!", OneOf(("now", "soon")), Some("0-9", 1, 2), SPACES), body, ahead=("{",), where="line_start")
    near = NearMiss(("!", OneOf(("now", "soon")), LINE_END), "the call has no number")
    dialect = house(opener, tags=(Tag(("!end",)),), near=(near,))
    answer = parse('!soon12 {"a": 1}!end\n!now\n', dialects=dialect)

    assert [("now", {"a": 1})] == [(call.name, call.arguments) for call in answer.calls]
    assert ("\n!now\n", "!now\n") == (answer.content, answer.warnings[0].raw)


TEXT_VALUES = {
    *("qwen3_coder_xml", "seed_oss_xml", "glm_xml", "hunyuan_xml", "poolside_xml", "k_exaone2_xml", "iquest_q1"),
    *("k2_horizon", "solar_open2", "anthropic_xml", "minicpm5_xml", "atem_xml", "dots_xml", "minimax_m2_xml"),
    *("minimax_m3_xml", "step3_xml", "morph_xml", "hunyuan4_xml", "iquest_coder2", "longcat_xml", "telechat4_xml"),
    "zaya_xml",
}
"""The dialects that write values as text, so that only a schema gives them their types."""
PLAIN_KEYS = {"deepseek_dsml", "gigachat35", "granite_lines"}
"""The dialects that have no form for an empty key."""


def hard_arguments(dialect: Dialect) -> Iterator[dict[str, Any]]:
    """Yield arguments that are difficult to write in a dialect."""
    yield {}
    yield {"a": 'x\n"\\', "b": "é😀", "content": ""}
    if dialect.id not in TEXT_VALUES:
        yield {"a": "é " + "".join(dialect.reserved)}
        yield {"a": "'\"", "b": [None, True, 1.5e-9, {"c d": []}], "d": {"e": 10**20, "é": ""}, "f": False}
        if dialect.id not in PLAIN_KEYS:
            yield {"a b": 1, "": "x", "a:b": 2, "9": 4}


@together("name", DIALECTS)
def test_each_dialect_reads_what_it_writes(name: str) -> None:
    for arguments in hard_arguments(DIALECTS[name]):
        text = DIALECTS[name].write_call("get_weather", arguments)
        calls = parse(text, dialects=[name], tools={"name": "get_weather"}).calls
        assert [("get_weather", arguments)] == [
            (call.name, restore(call.arguments, [DIALECTS[name]])) for call in calls
        ]


@together("name", DIALECTS)
def test_instructions_teach_by_an_example(name: str) -> None:
    """They hold a call, a result, and the notes of the dialect. The example can be replaced."""
    dialect = DIALECTS[name]
    text = dialect.instructions()

    assert dialect.write_call("get_weather", CALL) in text
    assert dialect.write_result("get_weather", '{"result":"..."}') in text
    assert dialect.notes in text
    assert dialect.write_call("now", {}) in dialect.instructions("now", {})


def test_tokens_of_a_template_cannot_be_taught() -> None:
    """Plain text can be taught to any model."""
    assert all(DIALECTS[each].teachable for each in ("hash_marker", "tilde_fence", "hermes_json", "qwen3_coder_xml"))
    assert not any(
        DIALECTS[each].teachable for each in ("harmony", "mistral_args", "deepseek_v31", "gemma4", "kimi_k2")
    )


PARSERS = {
    "deepseek_dsml": "deepseek_v32 deepseekv32 deepseekv4 deepseek_v41", "glm_xml": "glm45 GLM47", "harmony": "openai",
    "hermes_json": "qwen qwen25", "llama3_json": "llama3", "qwen3_coder_xml": "qwen3_xml mimo iquest_coder",
}  # fmt: skip
"""Names of parsers in vLLM and SGLang, by the ids of the dialects that they read."""


@pytest.mark.parametrize(
    ("dialects", "message"),
    [
        ("nonsense", "no dialect 'nonsense'; pass a dialect of your own as an object"),
        (["hash_marker", "nonsense"], "no dialect 'nonsense'"),
        (["hermes_json", "hash_marker", "hermes_json"], "two dialects have the id 'hermes_json'"),
        ([house(), house()], "two dialects have the id 'house'"),
        ([3], "no dialect 3"),
        *((name, rf"did you mean '{id}'\?$") for id, names in PARSERS.items() for name in names.split()),
    ],
)
def test_unknown_and_repeated_ids_are_refused(dialects: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse("", dialects=dialects)


@together(
    ("make", "message"),
    [
        (lambda: house(Opener((), json_calls())), r"must begin with a literal, got \(\)"),
        (lambda: house(Opener(("",), json_calls())), r"must begin with a literal, got \(''"),
        (lambda: house(Opener(("@", SPACES), json_calls())), "must end with a literal"),
        (lambda: house(tags=(Tag(("",)),)), "must begin with a literal"),
        (lambda: house(near=(NearMiss(("",), "it is empty"),)), "must begin with a literal"),
        (lambda: house(id=""), "is empty"),
        (lambda: Dialect("house", (), lambda name, arguments: name), "dialect 'house' can read no call"),
        (
            lambda: house(Opener(("@call",), json_calls()), Opener(("@calls",), json_calls())),
            "in dialect 'house' the marker '@calls' begins with '@call'",
        ),
        (
            lambda: house(Opener(("@", SPACES, "{"), json_calls()), Opener(("@", SPACES), json_calls(), ahead=("{",))),
            "in dialect 'house' the marker '@…{' begins with '@…{'",
        ),
        (
            lambda: house(Opener(("@call",), json_calls()), tags=(Tag(("@call", "er")),)),
            "in dialect 'house' the marker '@caller' begins with '@call'",
        ),
    ],
)
def test_an_invalid_marker_is_named_at_construction(make: Any, message: str) -> None:
    """Empty markers, markers without an end, and markers that begin with another marker."""
    with pytest.raises(ValueError, match=message):
        make()


def test_names_for_custom_dialects_come_from_one_package() -> None:
    assert streamtools.Dialect is Dialect
    assert streamtools.dialects_for is dialects_for


def test_auto_reads_reasoning_tags_only_at_the_start() -> None:
    """Several dialects read their tags anywhere, but with `"auto"` the dialect is only a guess."""
    text = "The [THINK] token, like <|channel>, begins a thought."
    assert text == parse(text, dialects="auto").content
    assert ("a", "b") == ((answer := parse("[THINK]a[/THINK]b", dialects="auto")).reasoning, answer.content)
