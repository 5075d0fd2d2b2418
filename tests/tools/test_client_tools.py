"""Tools that the front end executes: declared here, executed there, with their results delivered here."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.conversation import Chat
from streamtools.errors import DecisionRefused
from streamtools.events import Done, Executing, UIEvent
from streamtools.tools import MemoryLedger, Tool, tool
from streamtools.tools.approvals import Answer, Deny
from tests.support.approvals import Bank, EndedRun, calls, resume, run_chat
from tests.support.cases import together

SIGN = ("sign", {"text": "I owe you."})


def answer(result: Any = None, *, error: str | None = None) -> Any:
    """Hand a result in as soon as the call is there."""

    async def then(event: UIEvent, events: Chat) -> None:
        for question in await events.questions():
            events.answer(question.call.id, result, error=error)

    return then


def told(held: EndedRun) -> list[Any]:
    return [each["content"] for each in held.chat.messages() if each["role"] == "tool"]


async def test_a_tool_is_declared_by_its_signature() -> None:
    """Parameters and result come from the function, which never runs."""

    @tool(client=True)
    def pick(prompt: str, many: bool = False) -> list[str]:
        """Let the user pick colours."""
        raise AssertionError

    assert pick.client
    assert ["prompt"] == pick.parameters["required"]
    assert pick.output_type == list[str]


async def test_a_tool_is_declared_by_its_schema() -> None:
    """A front end sends its name, description and JSON schema."""
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    declared = Tool.declared("pick", "Let the user pick.", schema)
    assert declared.client
    assert schema == declared.parameters
    assert declared.replace(requires_approval=True).client
    held = await run_chat(calls(("pick", {"city": "Paris"})), tools=[declared])
    assert ["n0"] == [call.id for call in held.chat.result.pending]
    with pytest.raises(RuntimeError, match="the front end executes it"):
        declared({"city": "Paris"})


async def test_a_run_with_an_open_call_is_pending() -> None:
    held = await run_chat(calls(SIGN, ("look", {})), tools=Bank().tools)
    ran = ["executing n1", "executed n1: looked"]
    assert ["call n0", "call n1", *ran, "done waiting: tool_calls (None), pending n0"] == held.shown
    assert held.chat.suspension is not None


async def test_a_resumed_run_gets_the_result() -> None:
    """The interface and the model get it once."""
    bank, ledger = Bank(), MemoryLedger()
    held = await run_chat(calls(SIGN), tools=bank.tools)
    on = await resume(held, "Done.", tools=bank.tools, decisions={"n0": Answer({"pages": 2})}, ledger=ledger)
    assert ["call n0", "executing n0", "executed n0: {'pages': 2}", "follow-up of 1", "text 'Done.'"] == on.shown[:5]
    assert ['{"pages":2}'] == told(on)
    again = await resume(held, "Done.", tools=bank.tools, decisions={"n0": Answer({"pages": 3})}, ledger=ledger)
    assert ['{"pages":2}'] == told(again)


async def test_an_attended_run_waits_for_the_result() -> None:
    """It waits for nothing else."""
    held = await run_chat(calls(SIGN, ("look", {})), "Done.", tools=Bank().tools, ask="now", then=answer({"pages": 2}))
    assert ["call n0", "executing n0", "executed n0: {'pages': 2}"] == [line for line in held.shown if "n0" in line]
    started = [(event.call.id, event.client) for event in held.events if isinstance(event, Executing)]
    assert [("n0", True), ("n1", False)] == sorted(started)
    assert ['{"pages":2}', "looked"] == told(held)


WRONG_TYPE = "does not match the declared return type"


@together(
    ("decision", "code", "text"),
    [
        (Answer({"pages": "two"}), "tool_output", WRONG_TYPE),
        (Answer(None), "tool_output", WRONG_TYPE),
        (Answer({"pages": object()}), "tool_output", WRONG_TYPE),
        (Answer(error="no pen"), "tool_failed", "no pen"),
        (Deny("not mine"), "tool_denied", "was denied: not mine"),
    ],
)
async def test_an_invalid_result_is_an_error_for_the_model(decision: Any, code: str, text: str) -> None:
    """The run continues."""
    bank = Bank()
    held = await run_chat(calls(SIGN), tools=bank.tools)
    on = await resume(held, "Done.", tools=bank.tools, decisions={"n0": decision})
    assert f"error n0 {code}" in on.shown
    assert text in told(on)[0]
    assert "finished" == on.chat.result.reason


async def test_a_call_has_two_questions_in_order() -> None:
    """The first asks for the approval, and the second for the result."""
    asked: list[str] = []

    async def then(event: UIEvent, events: Chat) -> None:
        for question in await events.questions():
            if question.approval:
                asked.append("approval")
                with pytest.raises(DecisionRefused):
                    events.answer(question.call.id, "x")
                events.approve(question.call.id)
            else:
                asked.append("result")
                events.answer(question.call.id, "red")

    declared = Tool.declared("pick").replace(requires_approval=True)
    tools = [declared, Bank().look]

    held = await run_chat(calls(("pick", {}), ("look", {})), "Done.", tools=tools, ask="now", then=then)
    assert ["approval", "result"] == asked
    assert ["red", "looked"] == told(held)


async def test_an_approved_call_asks_for_its_result_in_the_same_run() -> None:
    declared = Tool.declared("pick").replace(requires_approval=True)
    held = await run_chat(calls(("pick", {})), tools=[declared])
    ledger = MemoryLedger()
    allowed = await resume(held, tools=[declared], decisions={"n0": True}, ledger=ledger)
    suspension = allowed.chat.suspension
    assert suspension is not None
    assert [False] == [question.approval for question in suspension.questions]
    assert [[], ["n0"]] == [each.client for run in (held, allowed) for each in run.events if isinstance(each, Done)]
    on = await resume(allowed, "Done.", tools=[declared], decisions={"n0": Answer("red")}, ledger=ledger)
    assert ["red"] == told(on)
