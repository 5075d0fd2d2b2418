"""Which calls of a turn count: native calls or calls in text, streamed or in the completed turn."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from streamtools import events as kinds
from streamtools import sources
from streamtools.calls import ToolChoice
from streamtools.errors import Code
from streamtools.parsing.dialects import TAUGHT_DIALECTS, hash_marker
from tests.machine.test_machine import ADD, BAD, driven
from tests.support.cases import together

NATIVE = kinds.NativeToolCall("add", {"a": 1}, "0", "n1")
BAD_NATIVE = kinds.NativeToolCall("add", "{a}", "1", "n2")
END = kinds.ProviderCompleted(finish_reason="tool_calls")


class Count(NamedTuple):
    """The calls that ran, the superseded calls, and the warnings."""

    run: list[str]
    superseded: list[str]
    warnings: list[Code]


def count(*events: kinds.SourceEvent, **options: Any) -> Count:
    """Return the counts of a run with named dialects. tests/machine/test_turned_native.py has the default dialects."""
    driver = driven(*events, **({"dialects": TAUGHT_DIALECTS} | options))
    run = [line.removeprefix("run ") for line in driver.story if line.startswith("run ")]
    ended = [event for event in driver.events if isinstance(event, kinds.Error) and event.code is Code.SUPERSEDED]
    assert all(event.call is None or event.call.id == event.call_id for event in ended)
    assert ADD not in "".join(line for line in driver.story if line.startswith("text"))
    return Count(
        run,
        [event.call_id or "" for event in ended],
        [event.code for event in driver.events if isinstance(event, kinds.Warning)],
    )


ROWS: dict[str, tuple[tuple[bool | None, ...], bool, bool, Count]] = {
    # flags, text calls, native calls
    "native calls of a model that makes them": ((True, None), False, True, Count(["n1"], [], [])),
    "both, of a model that makes native ones": ((True, None), True, True, Count(["n1"], ["c1"], [])),
    "text calls of a model that could make native ones": ((True, None), True, False, Count(["c1"], [], [])),
    "text calls of a model that makes no others": ((False,), True, False, Count(["c1"], [], [])),
    "both, of a model that makes no native ones": ((False,), True, True, Count(["c1"], ["n1"], [])),
    "native calls of a model that makes none": ((False,), False, True, Count(["n1"], [], [Code.UNDECLARED_NATIVE])),
    "nothing": ((True, None, False), False, False, Count([], [], [])),
}
CASES = [
    pytest.param(flag, text, native, expected, id=f"{name}, {flag}")
    for name, (flags, text, native, expected) in ROWS.items()
    for flag in flags
]


@together("finished", [False, True], ids=["streamed", "finished"])
@together(("flag", "text", "native", "expected"), CASES)
def test_one_kind_of_calls_counts(flag: bool | None, text: bool, native: bool, expected: Count, finished: bool) -> None:
    """The option and the calls decide, for streamed calls and for those of the completed turn."""
    written, told = ADD if text else "Hi.", [NATIVE] if native else []
    events: list[kinds.SourceEvent]
    if finished:
        events = [kinds.ProviderCompleted(text=written, tool_calls=told, finish_reason="tool_calls")]
    else:
        events = [kinds.TextDelta(written), *told, END]

    assert expected == count(*events, native_tool_calls=flag)


@together("flag", [True, False, None])
@together("text", [True, False])
@together("native", [True, False])
def test_no_call_of_a_self_contained_agent_counts(flag: bool | None, text: bool, native: bool) -> None:
    """Its calls end as superseded, and violate no tool choice."""
    events: list[kinds.SourceEvent] = [kinds.TextDelta(ADD if text else "Hi."), *([NATIVE] if native else []), END]
    ids = ["c1"] * text + ["n1"] * native
    options: dict[str, Any] = {
        "native_tool_calls": flag,
        "self_contained": True,
        "tool_choice": ToolChoice("tool", "other"),
    }

    assert Count([], ids, []) == count(*events, **options)
    assert Count([], ids, []) == count(*events, **options, execute="eager")


def test_a_malformed_call_selects_its_kind() -> None:
    """The model gets its error, and no call of the other kind runs instead."""
    assert Count([], ["c1"], []) == count(kinds.TextDelta(ADD), BAD_NATIVE, END)
    assert Count([], ["n1"], []) == count(kinds.TextDelta(BAD), NATIVE, END, native_tool_calls=False)
    assert Count(["n1"], ["c1"], []) == count(kinds.TextDelta(ADD), BAD_NATIVE, NATIVE, END)


def test_calls_that_only_the_completed_text_holds_count() -> None:
    end = kinds.ProviderCompleted(text=ADD, finish_reason="stop")

    assert Count(["n1"], ["c1"], [Code.TEXT_MISMATCH]) == count(kinds.TextDelta("Hi."), NATIVE, end)
    assert Count(["c1"], ["n1"], [Code.TEXT_MISMATCH]) == count(
        kinds.TextDelta("Hi."), NATIVE, end, native_tool_calls=False
    )


@pytest.mark.parametrize(
    ("flag", "expected"), [(True, ["n1", "n2"]), (None, ["n1", "n2"]), (False, ["n1 n2"])], ids=["yes", "unknown", "no"]
)
def test_eager_native_calls_run_when_they_are_complete(flag: bool | None, expected: list[str]) -> None:
    """Unless calls in text may supersede them."""
    other = kinds.NativeToolCall("add", {"a": 2}, "1", "n2")

    assert expected == count(NATIVE, other, END, native_tool_calls=flag, execute="eager").run
    assert ["n1"] == count(NATIVE, kinds.TextDelta(ADD), END, execute="eager").run


# Failed generations.


def failed(generation: str, **options: Any) -> tuple[list[str], list[Any]]:
    """Return the story of a turn that the provider ended with an error, and its calls."""
    refused = kinds.SourceError("no", status=400, failed_generation=generation)
    driver = driven(kinds.TextDelta("Hm. "), refused, **options)
    return driver.story, [event.call for event in driver.events if isinstance(event, kinds.Call)]


TOOLS = [{"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]


@pytest.mark.parametrize(
    "generation",
    [
        '{"name": "add", "arguments": {"a": 1}}',
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
        'I will.<function=add>{"a": 1}</function>',
    ],
    ids=["bare JSON", "tags", "a name in a tag"],
)
def test_a_call_that_the_provider_could_not_read_runs(generation: str) -> None:
    """It is a native call, in any form."""
    story, calls = failed(generation, tools=TOOLS, dialects=["raw_json", "hermes_json", "llama31_function_tag"])

    assert [("native", "", {"a": 1})] == [(call.dialect, call.raw, call.arguments) for call in calls]
    assert ["step 1", "text 'Hm. '", "warning salvaged", "thinking c1", "c1 is add", "call c1", "not thinking c1"] == [
        line for line in story if line != "start"
    ][:7]
    assert ["run c1", "step 1 ends: tool_calls", "done finished: tool_calls (None)"] == story[-3:]


@pytest.mark.parametrize(
    "options", [{"dialects": TAUGHT_DIALECTS}, {"native_tool_calls": True}, {"dialects": [hash_marker(nonce="k7")]}]
)
def test_a_salvaged_call_in_another_dialect_is_malformed(options: Any) -> None:
    """It may be a quotation. The model must send it again."""
    story, calls = failed("<function=add>{}</function>", tools=TOOLS, **options)

    assert not calls
    assert "error c1 unrecognised_tool_call" in story
    assert ["step 1 ends: tool_calls", "done finished: tool_calls (None)"] == story[-2:]


def test_a_failed_generation_begins_a_turn() -> None:
    refused = kinds.SourceError("no", failed_generation='###:{"name": "add"}')
    driver = driven(refused, tools=TOOLS, in_reasoning=True)

    assert ["start", "step 1", "warning salvaged"] == driver.story[:3]
    assert "run c1" in driver.story


GENERATION = '###:{"name": "add", "arguments": {"a": 1}}'
REFUSED = kinds.SourceError("no", failed_generation=GENERATION)
STREAMED: list[kinds.SourceEvent] = [kinds.ToolCallStart("0", "n1", "add"), kinds.ToolCallDelta("0", '{"a": 1}')]


def test_a_salvaged_call_that_was_streamed_runs_once() -> None:
    assert Count(["c1"], [], [Code.SALVAGED]) == count(*STREAMED, REFUSED, tools=TOOLS)._replace(superseded=[])
    assert ["c1"] == count(*STREAMED, REFUSED, tools=TOOLS, execute="eager").run


def test_no_call_of_a_truncated_failed_generation_runs() -> None:
    adapter = sources.adapter("openai")
    cut = b'data: {"choices":[{"delta":{"content":"Hm."},"finish_reason":"length"}]}\n\n'
    refused = {"message": "no", "code": "tool_use_failed", "failed_generation": GENERATION}
    events = adapter.feed(cut + b"event: error\ndata: " + json.dumps({"error": refused}).encode() + b"\n\n")

    assert [] == count(*events, *adapter.close(), tools=TOOLS).run
