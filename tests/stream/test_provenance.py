"""Whose call is it? One that the model only repeats, because it had read it somewhere, runs no dangerous tool.

A page, a document or the result of a tool holds a complete call, and the model quotes it. Under a marker with a nonce
the quotation is text. Without one nobody can tell it from a call of the model's own; so tools that do not trust text do
not run for it, in any dialect.
"""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import Dialect
from streamtools.errors import Code
from streamtools.events import Error, SourceError, UIEvent, Warning
from streamtools.parsing.dialects import DIALECTS
from streamtools.parsing.dialects.hash_and_tilde import hash_marker, tilde_fence
from streamtools.tools import Tool
from tests.support.approvals import ANN, Bank, calls, hold
from tests.support.cases import cases
from tests.support.loops import OTHER_LOOP_DEEP

pytestmark = pytest.mark.anyio


def planted(dialect: Dialect) -> str:
    """Return an answer that repeats a call which the model has read somewhere."""
    return dialect.write_call("pay", ANN)


def refusals(events: list[UIEvent]) -> list[Code]:
    return [event.code for event in events if isinstance(event, Error)]


@OTHER_LOOP_DEEP
async def test_a_native_tool_does_not_run_for_text() -> None:
    """Without a nonce the call is denied, and the model is told why."""
    with cases() as case:
        for name, dialect in DIALECTS.items():
            with case(name):
                bank = Bank(requires_approval=False, trust="native")
                held = await hold(planted(dialect), "Sorry.", tools=bank.tools, dialects=[dialect])
                assert [] == bank.paid
                assert [Code.TOOL_DENIED] == refusals(held.events)


@OTHER_LOOP_DEEP
async def test_an_approved_tool_asks_for_text() -> None:
    """Without a nonce somebody has to allow the call."""
    with cases() as case:
        for name, dialect in DIALECTS.items():
            with case(name):
                bank = Bank(requires_approval=False, trust="approved")
                held = await hold(planted(dialect), tools=bank.tools, dialects=[dialect])
                assert [] == bank.paid
                assert ["pay"] == [call.name for call in held.chat.result.pending]


@OTHER_LOOP_DEEP
@pytest.mark.parametrize("make", [hash_marker, tilde_fence])
async def test_with_a_nonce_no_quotation_is_a_call(make: Any) -> None:
    """Not even for tools that trust text."""
    with cases() as case:
        for name, dialect in DIALECTS.items():
            with case(name):
                bank = Bank(requires_approval=False)
                held = await hold(planted(dialect), tools=bank.tools, dialects=[make(nonce="k7")])
                assert [] == bank.paid
                assert [] == held.chat.result.calls


@pytest.mark.parametrize("trust", ["text", "native", "approved"])
@pytest.mark.parametrize("make", [hash_marker, tilde_fence])
async def test_what_has_the_nonce_is_the_models_own(make: Any, trust: str) -> None:
    """Tools run for it as for a native call."""
    bank = Bank(requires_approval=False, trust=trust)
    dialect = make(nonce="k7")
    await hold(planted(dialect), "Done.", tools=bank.tools, dialects=[dialect])
    assert [("Ann", 5)] == bank.paid


@pytest.mark.parametrize("trust", ["text", "native", "approved"])
async def test_native_calls_are_the_models_own(trust: str) -> None:
    """The provider tells them apart from all text."""
    bank = Bank(requires_approval=False, trust=trust)
    await hold(calls(("pay", ANN)), "Done.", tools=bank.tools)
    assert [("Ann", 5)] == bank.paid


@pytest.mark.parametrize("trust", ["native", "approved"])
async def test_a_salvaged_call_stood_in_text(trust: str) -> None:
    """The provider refused to read it, and it was found in what the model had written: it is no native call here."""
    bank = Bank(requires_approval=False, trust=trust)
    error = SourceError("no tool call", failed_generation=planted(DIALECTS["hermes_json"]))
    answers = [[error], "Sorry."] if trust == "native" else [[error]]
    held = await hold(*answers, tools=bank.tools, dialects="hermes_json")
    assert [Code.SALVAGED] == [event.code for event in held.events if isinstance(event, Warning)]
    assert [] == bank.paid


async def test_an_approved_call_in_text_runs() -> None:
    """That is what approval is for."""
    bank = Bank(requires_approval=False, trust="approved")

    def approve(event: UIEvent, events: Any) -> None:
        for question in events.questions:
            events.approve(question.call.id)

    await hold(planted(tilde_fence()), "Done.", tools=bank.tools, ask="now", then=approve)
    assert [("Ann", 5)] == bank.paid


async def test_a_validator_that_breaks() -> None:
    """Whether the arguments fit is found out by the tool itself, which then fails; nobody is asked before."""

    def pay(to: str) -> str:
        raise AssertionError

    broken = Tool(pay, trust="approved")
    broken.read = lambda arguments: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    held = await hold(planted(tilde_fence()), "Sorry.", tools=[broken])
    assert [Code.TOOL_FAILED] == refusals(held.events)
