"""Calls that need approval: now, or later in another process."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import Any

import pytest
import structlog.testing
from pydantic import BaseModel

from streamtools import ToolContext, ToolRegistry, ToolStream, sources, tool
from streamtools.conversation import Chat
from streamtools.errors import DecisionRefused
from streamtools.events import ApprovalRequested, UIEvent
from streamtools.tools import MemoryLedger, Tool
from tests.support.approvals import ANN, Bank, EndedRun, block, calls, resume, run_chat
from tests.support.cases import together
from tests.support.options import grouped

ASKED = calls(("pay", ANN), ("look", {}))
DEEP = '{"questions":[{"call":{"arguments":{"a":' + "[" * 100_000


async def suspended(bank: Bank, **options: Any) -> EndedRun:
    """A run that has left the payment open."""
    held = await run_chat(ASKED, tools=bank.tools, **options)
    assert [] == bank.paid
    return held


# Now.


async def test_a_wrong_decision_and_a_second_decision_are_refused() -> None:
    """Both raise at the call. The tool runs once."""
    bank = Bank()
    refused: list[str] = []

    def twice(event: UIEvent, events: Chat) -> None:
        if isinstance(event, ApprovalRequested):
            assert event.expires is not None
            for wrong in (None, "yes", {"decision": "approve"}):
                with pytest.raises(ValueError, match="'n0' must be Approve, Deny, Answer, True or False"):
                    events.decide(event.call.id, wrong)  # type: ignore[arg-type]
            for _ in range(2):
                events.decide(event.call.id, True)
            events.approve(event.call.id, digest=event.digest)
            for again in (events.deny, events.answer, lambda call_id: events.approve(call_id, "other")):
                with pytest.raises(DecisionRefused) as error:
                    again(event.call.id)
                refused.append(str(error.value))

    await run_chat(ASKED, "Done.", tools=bank.tools, ask="now", then=twice)
    assert ["call 'n0' was approved; this decision is ignored"] * 3 == refused
    assert [("Ann", 5)] == bank.paid


@pytest.mark.parametrize("digest", [None, "of the shown call"])
async def test_a_call_that_changes_after_its_approval_does_not_run(digest: str | None) -> None:
    bank = Bank()

    async def change(event: UIEvent, events: Chat) -> None:
        if isinstance(event, ApprovalRequested):
            (question,) = [each for each in await events.questions() if each.call.id == event.call.id]
            events.approve(event.call.id, digest=question.digest if digest else None)
            event.call.arguments["amount"] = 5000

    held = await run_chat(calls(("pay", ANN)), "Pity.", tools=bank.tools, ask="now", then=change)
    assert [] == bank.paid
    assert "error n0 tool_denied" in held.shown


async def test_a_tool_ends_the_run_while_another_waits() -> None:
    """The waiting call is pending and can no longer be approved."""
    bank = Bank()

    @tool
    async def stop() -> Any:
        from streamtools import ToolResult

        return ToolResult(model="enough", stop=True)

    held = await run_chat(calls(("pay", ANN), ("stop", {})), tools=bank.tools.merge(stop), ask="now")
    assert "done stopped: tool_stop (None), pending n0" == held.shown[-1]
    with pytest.raises(DecisionRefused, match="does not wait for a decision"):
        held.chat.approve("n0")


async def test_approve_is_refused_in_a_run_that_asks_later() -> None:
    stream = ToolStream(sources.text("Hello"))
    with pytest.raises(DecisionRefused, match=r"to `runs.decide` or to the next chat, or set") as refused:
        stream.approve("n0")
    assert "call 'n0' does not wait for a decision" == str(refused.value)


# Decisions in a later run.


@pytest.mark.parametrize("as_json", [True, False])
async def test_an_approved_run_continues(as_json: bool) -> None:
    """In another process the call runs, and the model gets both results in call order."""
    bank = Bank()
    held = await suspended(bank)
    suspension = held.chat.suspension
    assert suspension is not None
    kept = suspension.to_json() if as_json else suspension
    on = await resume(held, "Done.", tools=bank.tools, decisions={"n0": True}, resume=kept)
    expected = ["call n0", "executing n0", "executed n0: paid 5 to Ann", "follow-up of 1", "text 'Done.'"]
    assert [*expected, "done finished: stop (None)"] == on.shown
    assert [("Ann", 5)] == bank.paid
    told = [each for each in on.chat.messages() if each["role"] == "tool"]
    assert [("n0", "paid 5 to Ann"), ("n1", "looked")] == [(each["tool_call_id"], each["content"]) for each in told]
    assert on.chat.messages()[-1] == {"role": "assistant", "content": "Done."}
    assert [{"role": "tool", "tool_call_id": "n0", "content": "paid 5 to Ann"}] == on.chat.result.messages()[:1]
    (ask,) = on.model.asks
    assert "not run" not in repr(ask.history)


@together("format", ["openai", "responses", "anthropic", "gemini", "ollama"])
async def test_the_result_continues_the_history_of_each_provider(format: Any) -> None:
    """`result.messages` of the resumed run starts with the result and does not repeat the call."""
    bank = Bank()
    held = await suspended(bank)
    on = await resume(held, "Done.", tools=bank.tools, decisions={"n0": True})
    written = json.dumps(on.chat.result.messages(format))
    assert "paid 5 to Ann" in written
    assert '"amount"' not in written


async def test_calls_in_text_are_resumed() -> None:
    """Their results are written in their dialect, and their text appears once."""
    bank = Bank()
    held = await run_chat("Ok.\n" + block("pay", json.dumps(ANN)), tools=bank.tools)
    (call,) = held.chat.result.pending
    on = await resume(held, "Done.", tools=bank.tools, decisions={call.id: True})
    assert [("Ann", 5)] == bank.paid
    messages = on.chat.messages()
    assert {"role": "user", "content": "~~~tool_result pay\npaid 5 to Ann\n~~~"} == messages[2]
    assert 1 == json.dumps(messages).count("~~~tool_call")
    assert "~~~tool_call" not in json.dumps(on.chat.result.messages())


async def test_a_changed_call_is_refused() -> None:
    """One argument differs from the approved call. Nothing runs, and the call can still be denied."""
    bank = Bank()
    suspension = (held := await suspended(bank)).chat.suspension
    assert suspension is not None
    forged = json.loads(suspension.to_json())
    forged["questions"][0]["call"]["arguments"]["amount"] = 5000
    with pytest.raises(DecisionRefused, match="its digest differs"):
        await resume(held, "Done.", tools=bank.tools, decisions={"n0": True}, resume=json.dumps(forged))
    on = await resume(held, "Done.", tools=bank.tools, decisions={"n0": False}, resume=json.dumps(forged))
    assert ["call n0", "error n0 tool_denied"] == on.shown[:2]
    assert [] == bank.paid


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        pytest.param({}, 86_400.0, id="a day"),
        pytest.param({"decision_timeout": 60.0}, 60.0, id="a minute"),
        pytest.param({"decision_timeout": math.inf}, None, id="no timeout"),
    ],
)
async def test_a_question_has_the_configured_timeout(options: Any, seconds: float | None) -> None:
    """In a run with `ask="later"`, the default is one day."""
    before = time.time()
    held = await suspended(Bank(), **options)
    assert held.chat.suspension is not None
    (question,) = held.chat.suspension.questions
    if seconds is None:
        assert question.expires is None
    else:
        assert question.expires is not None
        assert before + seconds <= question.expires <= time.time() + seconds


async def test_resuming_needs_a_ledger() -> None:
    """Without a ledger the call could run twice, so the error comes first."""
    bank = Bank()
    held = await suspended(bank)
    with pytest.raises(ValueError, match=r"write runner=RunnerOptions\(ledger=SQLiteLedger"):
        await resume(held, "Done.", tools=bank.tools, decisions={"n0": True}, ledger=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"ask": "soon"}, "ask must be one of 'later', 'now', got 'soon'", id="ask"),
        pytest.param({"decision_timeout": 0}, "timeout must be a positive number", id="no time"),
        pytest.param({"decision_timeout": "5"}, "timeout must be a positive number", id="no number"),
        pytest.param({"decisions": {"x": True}}, "call 'x' does not wait for a decision", id="nothing to decide"),
        pytest.param({"resume": "{}", "ledger": MemoryLedger()}, "run_id", id="no suspension"),
        pytest.param({"resume": {"run_id": "r"}, "ledger": MemoryLedger()}, "must be a Suspension", id="a dict"),
        pytest.param({"resume": DEEP, "ledger": MemoryLedger()}, "nested too deeply", id="a deep suspension"),
    ],
)
def test_wrong_values_are_refused(options: dict[str, Any], message: str) -> None:
    """The constructor names the invalid value."""
    with pytest.raises(ValueError, match=message):
        ToolStream(sources.text("Hello"), **grouped(**options))


async def test_a_stream_resumes_a_run() -> None:
    """The calls run first. Then the response to the caller's follow-up is read."""
    bank = Bank()
    held = await suspended(bank)
    source = sources.text(["Done."])
    options: Any = {"resume": held.chat.suspension, "decisions": {"n0": True}, "ledger": MemoryLedger()}
    async with ToolStream(source, tools=bank.tools, **grouped(**options)) as events:
        kinds = [event.type async for event in events]
    step = ["step-start", "call", "executing", "executed", "step-end"]
    assert ["start", *step, "step-start", "text", "step-end", "done"] == kinds
    assert [("Ann", 5)] == bank.paid


# Which calls.


@together(
    ("arguments", "asks"),
    [
        pytest.param({"to": "Ann", "amount": 5}, False, id="little"),
        pytest.param({"to": "Ann", "amount": 50}, True, id="much"),
        pytest.param({"to": "Ann"}, False, id="refused anyway"),
    ],
)
@together("is_async", [True, False])
async def test_a_predicate_decides(arguments: dict[str, Any], asks: bool, is_async: bool) -> None:
    """It decides from the arguments, and from the context if it has one. A call that cannot run needs no approval."""

    def much(given: dict[str, Any]) -> bool:
        return bool(given["amount"] > 10)

    async def waits(given: dict[str, Any], context: ToolContext[str]) -> bool:
        return much(given) and (context.call_id, context.name, context.state) == ("n0", "pay", "Ann")

    bank = Bank(requires_approval=waits if is_async else much)
    held = await run_chat(calls(("pay", arguments)), *([] if asks else ["Done."]), tools=bank.tools, state="Ann")
    assert asks == ("may n0 run?" in held.shown)


class Payment(BaseModel):
    amount: int
    to: str = "Ann"


@dataclass(slots=True)
class Transfer:
    amount: int
    to: str = "Ann"


def pay_fields(amount: int, to: str = "Ann") -> str:
    return f"paid {amount} to {to}"


def pay_record(payment: Payment) -> str:
    return pay_fields(payment.amount, payment.to)


def pay_dataclass(payment: Transfer) -> str:
    return pay_fields(payment.amount, payment.to)


def pay_dict(arguments: dict[str, Any]) -> str:
    return pay_fields(arguments["amount"])


@together("function", [pay_fields, pay_record, pay_dataclass])
async def test_a_predicate_gets_the_values_that_the_tool_would_get(function: Any) -> None:
    """They are validated, and have the defaults. The tool would get the number 50 for the text "50"."""
    pay = Tool(function, name="pay", requires_approval=lambda given: given == {"amount": 50, "to": "Ann"})
    assert "may n0 run?" in (await run_chat(calls(("pay", {"amount": "50"})), tools=[pay])).shown


async def test_a_predicate_of_a_handler_gets_its_dict() -> None:
    """With `parameters=`, the tool gets the arguments as the model wrote them, and so does the predicate."""
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    pay = Tool(pay_dict, name="pay", parameters=schema, requires_approval=lambda given: given == {"amount": "50"})
    assert "may n0 run?" in (await run_chat(calls(("pay", {"amount": "50"})), tools=[pay])).shown


async def test_a_call_needs_approval_if_its_predicate_raises_or_returns_no_bool() -> None:
    """The log has the type of the error, not its text."""

    def broken(given: dict[str, Any]) -> bool:
        raise RuntimeError("secret")

    bank = Bank(requires_approval=lambda given: None)  # a forgotten `return`
    assert "may n0 run?" in (await run_chat(calls(("pay", ANN)), tools=bank.tools)).shown
    bank = Bank(requires_approval=broken)
    with structlog.testing.capture_logs() as logs:
        held = await run_chat(calls(("pay", ANN)), tools=bank.tools)
    assert "may n0 run?" in held.shown
    place = f"{__file__}:{broken.__code__.co_firstlineno + 1}"
    expected = {"event": "approval_not_decided", "tool": "pay", "error": "RuntimeError", "raised_at": place}
    logged, _ = logs  # the second says that there is no ledger
    assert "RuntimeError: secret" in logged.pop("exception")
    assert "fix the function in requires_approval" in logged.pop("advice")
    assert {**expected, "logger": "streamtools.tools.approvals", "log_level": "error"} == logged


def test_invalid_values_of_requires_approval_are_refused() -> None:
    """The error is raised when the tool is defined."""
    wrong: Any = {"requires_approval": "always"}
    with pytest.raises(TypeError, match=r"requires_approval must be callable as .*; or write True or False"):
        Tool(Bank().look, **wrong)
    wrong = {"trust": "always"}
    with pytest.raises(ValueError, match="trust must be one of 'text', 'native', 'approved', got 'always'"):
        Tool(Bank().look, **wrong)


async def test_execute_needs_no_approval() -> None:
    """The caller makes this call."""
    bank = Bank()
    registry: ToolRegistry = bank.tools
    assert "paid 5 to Ann" == await registry.execute("pay", ANN)
