"""Regressions that an attack on approvals, resumed runs, the ledger and MCP found."""

from __future__ import annotations

import json
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog.testing

from streamtools import RunnerOptions, ToolRegistry, ToolResult, ToolStream, sources
from streamtools.calls import ToolCall
from streamtools.conversation import Chat
from streamtools.events import UIEvent
from streamtools.tools import MemoryLedger, Tool, ToolError, ledger
from streamtools.tools.approvals import Deny, Question, Suspension
from streamtools.tools.guards import Guards
from streamtools.tools.results import ToolOutcome
from tests.support.approvals import ANN, Bank, block, calls, resume, run_chat
from tests.tools.test_mcp import Server, listed

PAY: Any = calls(("pay", ANN))


# Approval.


async def test_the_second_question_is_not_answered_by_the_first() -> None:
    """An approved call that is never executed ends as denied."""

    async def approve(event: UIEvent, events: Chat) -> None:
        for question in await events.questions():
            if question.approval:
                events.approve(question.call.id)

    declared = Tool.declared("pick").replace(requires_approval=True)
    held = await run_chat(
        calls(("pick", {})), "Pity.", tools=[declared], ask="now", decision_timeout=0.05, then=approve
    )
    assert ["call n0", "may n0 run?", "executing n0", "error n0 tool_denied"] == held.shown[:4]


class Moody(Bank):
    """A bank that asks the first time, and never again."""

    def __init__(self) -> None:
        super().__init__()
        asks = [True]
        self.tools = ToolRegistry(Tool(self.pay, requires_approval=lambda arguments: bool(asks and asks.pop())))


@pytest.mark.parametrize("decisions", [{"n0": False}, {}], ids=["denied", "undecided"])
async def test_an_open_question_outlives_a_changed_predicate(decisions: Any) -> None:
    """A call with an open question does not run without approval."""
    bank = Moody()
    on = await resume(
        await run_chat(PAY, tools=bank.tools), *(["Pity."] if decisions else []), tools=bank.tools, decisions=decisions
    )
    assert [] == bank.paid
    assert (["n0"] if not decisions else []) == [call.id for call in on.chat.result.pending]


async def test_no_approved_call_starts_after_a_tool_has_stopped_the_run() -> None:
    """Several calls wait for one slot, and the run ends."""
    approved = anyio.Event()
    ran: list[int] = []

    async def halt() -> ToolResult:
        await approved.wait()
        return ToolResult(model="enough", stop=True)

    async def pay(n: int) -> None:
        ran.append(n)

    async def approve(event: UIEvent, events: Chat) -> None:
        if len(await events.questions()) == 3:
            for question in await events.questions():
                events.approve(question.call.id)
            await anyio.wait_all_tasks_blocked()
            approved.set()

    wanted = calls(("halt", {}), *(("pay", {"n": n}) for n in range(3)))
    tools = [halt, Tool(pay, requires_approval=True)]
    with anyio.fail_after(10):
        held = await run_chat(wanted, tools=tools, ask="now", concurrency=1, then=approve)
    assert "done stopped: tool_stop (None), pending n1 n2 n3" == held.shown[-1]
    assert [] == ran


async def test_no_question_after_a_tool_has_stopped_the_run() -> None:
    """Holds also if the predicate was still running."""
    thinking = anyio.Event()

    async def halt() -> ToolResult:
        await thinking.wait()
        return ToolResult(model="enough", stop=True)

    async def slow(arguments: dict[str, Any]) -> bool:
        thinking.set()
        await anyio.wait_all_tasks_blocked()
        return True

    tools = [halt, Tool(Bank().pay, requires_approval=slow)]
    with anyio.fail_after(10):
        held = await run_chat(calls(("halt", {}), ("pay", ANN)), tools=tools, ask="now")
    assert "may n1 run?" not in held.shown
    assert "done stopped: tool_stop (None), pending n1" == held.shown[-1]


async def test_a_suspended_call_is_pending_after_the_time_limit() -> None:
    """It has not started, so it is not cancelled, and the conversation can continue."""
    bank = Bank()

    async def slow() -> None:
        await anyio.sleep_forever()

    tools = [*bank.tools, slow]
    held = await run_chat(calls(("pay", ANN), ("slow", {})), tools=tools, guards=Guards(seconds=0.1))
    assert "done stopped: time_limit (None), pending n0" == held.shown[-1]
    on = await resume(held, "Done.", tools=tools, decisions={"n0": True})
    assert [("Ann", 5)] == bank.paid
    assert ["paid 5 to Ann"] == [each["content"] for each in on.chat.messages()[2:3]]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_cancelled_task_in_a_predicate_is_a_failure(anyio_backend: str) -> None:
    """The run is not cancelled, and the call needs approval."""
    import asyncio

    async def broken(arguments: dict[str, Any]) -> bool:
        raise asyncio.CancelledError

    held = await run_chat(PAY, tools=Bank(requires_approval=broken).tools)
    assert "may n0 run?" in held.shown


# Resumed runs.


async def test_a_new_call_with_a_known_id_runs() -> None:
    """Providers may repeat ids in each turn. Such a call gets a new id."""
    bank, ledger = Bank(), MemoryLedger()
    looked: list[int] = []

    async def look() -> int:
        looked.append(len(looked))
        return len(looked)

    tools = ToolRegistry(bank.tools.get("pay"), look)
    held = await run_chat(calls(("pay", ANN), ("look", {})), tools=tools, ledger=ledger)
    again = calls(("look", {}), ("look", {}))
    on = await resume(held, again, "Done.", tools=tools, decisions={"n0": True}, ledger=ledger)
    assert [0, 1, 2] == looked
    assert ["n0", "n0_2", "n1_2"] == [call.id for call in on.chat.result.calls]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda messages: messages[:1], "must follow the turn", id="not there"),
        pytest.param(
            lambda messages: [*messages, {"role": "tool", "tool_call_id": "n0", "content": "x"}],
            "has two results",
            id="answered already",
        ),
    ],
)
async def test_messages_without_the_resumed_call_are_refused(change: Any, message: str) -> None:
    """Otherwise its result would have no position."""
    bank = Bank()
    held = await run_chat(PAY, tools=bank.tools)
    with pytest.raises(ValueError, match=f"do not end with the calls of the run that is resumed: .*{message}"):
        await resume(held, tools=bank.tools, decisions={"n0": True}, messages=change(held.chat.messages()))
    assert [] == bank.paid


async def test_resumed_calls_have_one_result() -> None:
    """Holds also for calls in text, and if the messages are a `history` that knows them."""
    bank = Bank()
    held = await run_chat(block("pay", json.dumps(ANN)), tools=bank.tools)
    (call,) = held.chat.result.pending

    def review(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**each, "content": each["content"].replace("Ann", "her")} for each in messages]

    options: Any = {"messages": held.chat.history, "review": review}
    on = await resume(held, "Done.", tools=bank.tools, decisions={call.id: True}, **options)
    assert "~~~tool_result pay\npaid 5 to her\n~~~" == on.chat.messages()[2]["content"]


async def test_a_run_that_executes_nothing_resumes_nothing() -> None:
    """The calls stay pending and can still be resumed."""
    bank = Bank()
    held = await run_chat(PAY, tools=bank.tools)
    on = await resume(held, tools=bank.tools, decisions={"n0": True}, execute="never")
    assert [] == bank.paid
    assert held.chat.suspension == on.chat.suspension


async def test_a_question_survives_a_guard_in_the_resumed_run() -> None:
    """A call that the guard stopped keeps its question, in its original run."""
    bank = Bank()
    held = await run_chat(calls(*(("pay", {"to": "Ann", "amount": n}) for n in range(3))), tools=bank.tools)
    decisions = {f"n{n}": True for n in range(3)}
    on = await resume(held, tools=bank.tools, decisions=decisions, guards=Guards(calls_per_turn=1))
    suspension = on.chat.suspension
    assert suspension is not None
    assert (held.chat.run_id, ["n1", "n2"]) == (suspension.run_id, [call.id for call in suspension.calls])
    on = await resume(on, "Done.", tools=bank.tools, decisions={"n1": True, "n2": True})
    assert [0, 1, 2] == [amount for _, amount in bank.paid]


async def test_nothing_more_is_read_while_a_resumed_call_is_open() -> None:
    """A suspension belongs to one run, under which the ledger knows its calls."""
    bank = Bank()
    held = await run_chat(PAY, tools=bank.tools)
    source = sources.events(PAY)
    async with ToolStream(
        source, tools=bank.tools, resume=held.chat.suspension, runner=RunnerOptions(ledger=MemoryLedger())
    ) as events:
        kinds = [event.type async for event in events]
    assert ["start", "step-start", "call", "approval-requested", "step-end", "done"] == kinds
    assert held.chat.suspension == events.suspension


def test_a_suspension_has_one_question_for_each_call() -> None:
    """With two questions, the answer to one would run the other call."""
    made = [ToolCall(id="n0", name="pay", arguments={"amount": n}, dialect="native") for n in range(2)]
    with pytest.raises(ValueError, match="two questions about one call"):
        Suspension(run_id="run_1", questions=[Question(call=call, digest=call.digest, approval=True) for call in made])


# The ledger.


@pytest.mark.parametrize("decisions", [(False, True), (True, False)], ids=["first denied", "first allowed"])
async def test_the_first_decision_counts(decisions: tuple[bool, bool]) -> None:
    """A denied call does not run later, and an executed call was not denied."""
    bank, ledger = Bank(), MemoryLedger()
    held = await run_chat(PAY, tools=bank.tools)
    told = [
        (await resume(held, "Done.", tools=bank.tools, decisions={"n0": said}, ledger=ledger)).chat.messages()[2:3]
        for said in decisions
    ]
    assert told[0] == told[1]
    assert int(decisions[0]) == len(bank.paid)


async def test_a_started_call_is_not_denied() -> None:
    """The process that ran the call died. Its outcome is unknown, not denied."""
    bank, ledger = Bank(), MemoryLedger()
    held = await run_chat(PAY, tools=bank.tools)
    (call,) = held.chat.result.pending
    await ledger.begin(held.chat.run_id, call)
    on = await resume(held, "Oh.", tools=bank.tools, decisions={"n0": Deny()}, ledger=ledger)
    assert "error n0 outcome_unknown" in on.shown


async def test_a_ledger_that_hangs_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run does not wait longer for it."""
    monkeypatch.setattr(ledger, "_FINISH_TIMEOUT_S", 0.05)

    class Hanging(MemoryLedger):
        async def finish(self, scope: str, outcome: ToolOutcome) -> None:
            await anyio.sleep_forever()

    bank = Bank(requires_approval=False)
    with structlog.testing.capture_logs() as logs:
        held = await run_chat(PAY, "Done.", tools=bank.tools, ledger=Hanging())
    assert "executed n0: paid 5 to Ann" in held.shown
    assert [("ledger_not_written", "it took too long")] == [(each["event"], each["error"]) for each in logs]


# What the model gets.


@pytest.mark.parametrize("by", ["the tool", "the front end", "who denies"])
async def test_the_limit_of_results_applies_to_errors(by: str) -> None:
    """Servers and front ends choose the length of their errors."""
    long = "x" * 5000

    async def fail() -> None:
        raise ToolError(long)

    async def decide(event: UIEvent, events: Chat) -> None:
        for question in await events.questions():
            if by == "who denies":
                events.deny(question.call.id, long)
            else:
                events.answer(question.call.id, error=long)

    tools = [fail] if by == "the tool" else [Tool(fail, client=True)]
    held = await run_chat(calls(("fail", {})), "Oh.", tools=tools, ask="now", then=decide, result_limit=200)
    (outcome,) = held.chat.result.outcomes
    assert outcome.text.startswith("the result has ")
    assert len(outcome.text) < 2000
    assert long in (outcome.message or "")


# Tools of MCP servers.


async def test_a_server_tool_never_replaces_another() -> None:
    """The first tool of a name stays, and this is logged."""
    taken = (await ToolRegistry().add_mcp(Server(listed("a_b"), listed("a.b")))).names[1]
    server = Server(*map(listed, ("a_b", taken, "a.b")))
    with structlog.testing.capture_logs() as logs:
        registry = await ToolRegistry().add_mcp(server)
    assert ["a_b", taken] == registry.names
    await registry.execute(taken)
    assert [taken] == [name for name, _ in server.called]
    assert ["mcp_tool_refused"] == [each["event"] for each in logs]
