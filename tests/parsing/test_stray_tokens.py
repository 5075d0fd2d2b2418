"""Tests of template tokens without a meaning at their position: they are hidden."""

from __future__ import annotations

import re

import pytest

from streamtools.parsing.dialects import DIALECTS
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, thought

TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]
f = call("f")
ATEM = """<atem:function_calls>
<atem:invoke name="NAME">
<atem:parameter name="a">x</atem:parameter>
</atem:invoke>
</atem:function_calls>"""
THOUGHT, TO_F = "to=self<|message|>Hm", "<|start|>assistant to=f<|message|>"
closes = re.compile(r"(?:</|<[|｜]|\]<\])[^<>]*(?:>\[</\w+)?>$").search
STEP = "<｜tool_call_begin｜>{}<steptml:invoke name='f'></steptml:invoke><｜tool_call_end｜>"
STEPS = f"<｜tool_calls_begin｜>\n{STEP.format('')}\n{STEP.format('')}\n<｜tool_calls_end｜>\n"
ANSWER = "<think>\nHm\n</think>\n<answer>\na\n</answer>"


@together(
    ("dialect", "text", "expected"),
    {
        "the same in the other dialect of Ling": ("glm_xml", "Bye<|role_end|>\n", ["Bye\n"]),
        "the end of a message of Gemma 4": ("gemma4", "Bye<turn|>\n", ["Bye\n"]),
        "the same of FunctionGemma": ("functiongemma", "Bye<end_of_turn>\n", ["Bye\n"]),
        "the same of Pangu": ("pangu_list", "Bye[unused10]", ["Bye"]),
        "the end of Mistral's calls": ("mistral_args", "[TOOL_CALLS]f[ARGS]{}[/TOOL_CALLS]b", [f, "b"]),
        "line feeds between Step's tags": ("step3_xml", f"a{STEPS}b", ["a", f, f, "\nb"]),
        "line feeds inside Hunyuan's answer": ("hunyuan_a13b_list", ANSWER, [thought("Hm"), "a"]),
        "two of them": ("hunyuan_a13b_list", "<answer>\n\na\n\n</answer>", ["\na\n"]),
    },
)
def test_stray_tokens_are_hidden(dialect: str, text: str, expected: list[Brief]) -> None:
    """In text, and after a call."""
    assert expected == read(text, dialects=[dialect], tools=TOOLS)


def test_a_repeated_closing_tag_is_hidden_after_a_call() -> None:
    """Elsewhere it is text, except for tokens that are always hidden."""
    tags = {each: closes(dialect.write_call("f", {})) for each, dialect in DIALECTS.items()}
    found = {each: tag[0] for each, tag in tags.items() if tag and each not in ("morph_xml", "kimi_k3_xtml")}
    assert len(found) > 40
    for each, tag in found.items():
        written = DIALECTS[each].write_call("f", {})
        assert [f, "b"] == read(f"{written}{tag}b", dialects=[each], tools=TOOLS), each
        assert read(f"a {tag}", dialects=[each], tools=TOOLS) in ([f"a {tag}"], ["a "]), each


@together(
    ("text", "expected"),
    {
        "to the tool": ("to=f<|message|>" + ATEM, [call("f", a="x")]),
        "after reasoning": (f"{THOUGHT}<|eom|>{TO_F}{ATEM}<|eom|>", [thought("Hm"), call("f", a="x")]),
        "after reasoning that is not closed": (f"{THOUGHT}{TO_F}{ATEM}<|eom|>", [thought("Hm"), call("f", a="x")]),
        "an answer after it": ("to=self<|message|>Hm<|start|>assistant to=user<|message|>Hi", [thought("Hm"), "Hi"]),
        "an example": ("to=user<|message|>So: " + ATEM, ["So: " + ATEM.replace("NAME", "f")]),
        "cut in the wrapper": ("to=f<|message|><atem:fun", [error("truncated")]),
        "cut after the header": ("to=f<|message|>", [error("truncated")]),
        "the prompt's header continues": (" to=f<|message|>" + ATEM, [call("f", a="x")]),
        "nearly a header": (" to=users", [" to=users"]),
    },
)
def test_only_a_muse_message_to_a_tool_holds_calls(text: str, expected: list[Brief]) -> None:
    for name in ("f", "f.f"):
        found = read(text.replace("NAME", name), dialects=["atem_xml"], tools=TOOLS)
        assert expected == [each.replace("f.f", "f") if isinstance(each, str) else each for each in found]


@pytest.mark.parametrize("name", ["f", "f.g", "f.f.f", ".", "x.y"])
def test_a_muse_namespace_that_differs_from_the_name_is_kept(name: str) -> None:
    assert [call(name, a="x")] == read("to=f<|message|>" + ATEM.replace("NAME", name), dialects=["atem_xml"])


@pytest.mark.parametrize("kind", ["", "function<｜tool_sep｜>"])
def test_the_type_of_a_step3_call_may_be_missing(kind: str) -> None:
    assert [f] == read(STEP.format(kind), dialects=["step3_xml"], tools=TOOLS)


@pytest.mark.parametrize("id", ["0", "12", "functions.0"])
def test_a_kimi_id_without_a_name_means_the_only_tool(id: str) -> None:
    """With two declared tools, it is an error."""
    text = f"<|tool_call_begin|>{id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"

    assert [f] == read(text, dialects=["kimi_k2"], tools=TOOLS)
    assert [call("g")] != read(text, dialects=["kimi_k2"], tools=[*TOOLS, {"name": "g"}])
    assert [error("unrecognised_tool_call")] == read(
        text.replace(id, "12"), dialects=["kimi_k2"], tools=[*TOOLS, {"name": "g"}]
    )


def _read_id(id: str, *names: str) -> list[Brief]:
    text = f"<|tool_call_begin|>{id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    return read(text, dialects=["kimi_k2"], tools=[{"name": name} for name in names])


@pytest.mark.parametrize("name", ["get_weather", "read-file", "a.b", "mcp__fs__read", "f", "web_search_2", "météo"])
@pytest.mark.parametrize(
    "form", ["functions.{}:0", "functions_{}_1", "functions.{}5", "{}:7", "{}_12", "{}3", "functions-{}-1", "{}"]
)
def test_the_name_in_a_kimi_id_is_the_only_declared_tool_that_fits(form: str, name: str) -> None:
    """Clients replace the punctuation of ids, and models copy these ids from their history."""
    names = ("get_weather", "read-file", "a.b", "mcp__fs__read", "f", "web_search_2", "météo")

    assert [call(name)] == _read_id(form.format(name), *names)
    assert [call(name)] == _read_id(form.format(name.replace("-", "_").replace(".", "_")), *names)


@pytest.mark.parametrize(
    ("id", "names", "expected"),
    [
        ("functions_read_2", ("read", "read_2"), error("unrecognised_tool_call")),
        ("functions_a_b_0", ("a.b", "a-b"), error("unrecognised_tool_call")),
        ("functions.a_b:0", ("a.b", "a-b"), error("unrecognised_tool_call")),
        ("functions.a-b:0", ("a.b", "a-b"), call("a-b")),
        ("functions.read_2:0", ("read", "read_2"), call("read_2")),
        ("functions_reader_0", ("read", "write"), error("unrecognised_tool_call")),
        ("call_abc", ("read", "write"), error("unrecognised_tool_call")),
        ("functions.unknown:0", ("read", "write"), call("unknown")),
    ],
)
def test_an_ambiguous_kimi_id_is_an_error(id: str, names: tuple[str, ...], expected: Brief) -> None:
    """An id as the template writes it keeps its name, also if the tool is unknown."""
    assert [expected] == _read_id(id, *names)


@together(
    ("dialect", "text", "code"),
    [
        ("poolside_xml", "<tool_call>a word</tool_call>", "unrecognised_tool_call"),
        ("inkling", "<|content_invoke_tool_json|>no<|end_message|>", "invalid_json"),
        ("apertus_list", "<|tools_prefix|>no<|tools_suffix|>", "invalid_json"),
    ],
)
def test_a_special_token_always_begins_a_call(dialect: str, text: str, code: str) -> None:
    """Whatever follows it."""
    assert [error(code), "b"] == read(f"{text}b", dialects=[dialect], tools=TOOLS)


def test_lfm2_numbers_may_begin_with_zeros() -> None:
    """In other dialects, they may not."""
    text = "<|tool_call_start|>[f(a=08, b=-007.50, c=00)]<|tool_call_end|>"
    other = text.replace("tool_call", "python")

    assert [call("f", a=8, b=-7.5, c=0)] == read(text, dialects=["lfm2_pythonic"], tools=TOOLS)
    assert [error("invalid_arguments")] == read(other, dialects=["pythonic_llama4"], tools=TOOLS)
