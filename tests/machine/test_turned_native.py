"""For a model with native calls, no dialect is enabled by default, so that a quotation is no call."""

from __future__ import annotations

import pytest

from streamtools import ToolCall, extract_tool_calls
from streamtools.calls import EMULATED, NATIVE
from streamtools.errors import Code
from streamtools.events import Call, NativeToolCall, ProviderCompleted, SourceEvent, Text, TextDelta, Warning
from streamtools.parsing.dialects import DIALECTS, TAUGHT_DIALECTS
from tests.machine.test_machine import Driver, driven

PLANTED = [DIALECTS[each].write_call("add", {"a": 1}) + "\nThat is what it says." for each in TAUGHT_DIALECTS]
NAMED = {"dialects": TAUGHT_DIALECTS}
ASKED = NativeToolCall("add", {"a": 1}, "0", "n1")
TURN, END = ProviderCompleted(finish_reason="tool_calls", ends_run=False), ProviderCompleted(finish_reason="stop")


def says(text: str) -> list[SourceEvent]:
    return [*map(TextDelta, text), END]


def calls_in_text(driver: Driver) -> int:
    return sum(isinstance(event, Call) and event.call.dialect != NATIVE for event in driver.events)


def check_shown(driver: Driver, text: str) -> None:
    """Assert that `text` is shown unchanged, with one warning about a near miss."""
    assert text in "".join(event.text for event in driver.events if isinstance(event, Text))
    assert 0 == calls_in_text(driver)
    (warning,) = [event for event in driver.events if isinstance(event, Warning)]
    assert Code.NEAR_MISS is warning.code
    assert "no dialect is enabled for a model with native calls" in warning.message


@pytest.mark.parametrize("text", PLANTED, ids=TAUGHT_DIALECTS)
def test_text_of_a_native_model_is_no_call(text: str) -> None:
    """A named dialect is read anyway."""
    check_shown(driven(*says(text), native_tool_calls=True), text)
    assert 1 == calls_in_text(driven(*says(text), native_tool_calls=True, **NAMED))


@pytest.mark.parametrize("text", PLANTED, ids=TAUGHT_DIALECTS)
@pytest.mark.parametrize("turns", [1, 3])
def test_text_is_no_call_after_the_first_native_call(text: str, turns: int) -> None:
    native: list[SourceEvent] = [each for _ in range(turns) for each in (ASKED, TURN)]

    check_shown(driven(*native, *says(text)), text)
    assert 1 == calls_in_text(driven(*says(text)))
    assert 1 == calls_in_text(driven(*native, *says(text), **NAMED))
    assert 1 == calls_in_text(driven(*native, *says(text), native_tool_calls=False))


@pytest.mark.parametrize("text", PLANTED, ids=TAUGHT_DIALECTS)
def test_malformed_and_resumed_calls_are_native_too(text: str) -> None:
    """An emulated call says nothing about the model."""
    bad = NativeToolCall("add", "{a}", "0", "n1")
    emulated = NativeToolCall("add", {"a": 1}, "0", f"{EMULATED}7_0", emulated=True)

    assert 0 == calls_in_text(driven(bad, TURN, *says(text)))
    assert 1 == calls_in_text(driven(emulated, TURN, *says(text)))
    for call_id, found in (("n1", 0), (f"{EMULATED}7_0", 1)):
        driver = Driver()
        driver.machine.resume([ToolCall(id=call_id, name="add", arguments={}, dialect=NATIVE)])
        driver.machine.take_runnable()
        driver.machine.end_step()
        driver.feed(*says(text))
        assert found == calls_in_text(driver)


@pytest.mark.parametrize("text", PLANTED, ids=TAUGHT_DIALECTS)
def test_the_completed_text_of_a_native_model_is_no_call(text: str) -> None:
    end = ProviderCompleted(text=text, finish_reason="stop")

    assert 0 == calls_in_text(driven(TextDelta("Hi."), end, native_tool_calls=True))
    assert 0 == calls_in_text(driven(ASKED, TURN, TextDelta("Hi."), end))


@pytest.mark.parametrize("text", PLANTED, ids=TAUGHT_DIALECTS)
def test_text_of_a_finished_response_of_a_native_model_is_no_call(text: str) -> None:
    assert [] == extract_tool_calls(text, native_tool_calls=True).calls
    assert 1 == len(extract_tool_calls(text, native_tool_calls=True, dialects=TAUGHT_DIALECTS).calls)
