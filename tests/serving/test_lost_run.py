"""The end of a run whose owner is gone, after each of its events; and results as JSON."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import BaseModel, Field

from streamtools import ApprovalOptions, RunnerOptions, chat, replay
from streamtools.conversation import ScriptedModel
from streamtools.errors import Code
from streamtools.events import Done, Error, Executed, Executing, Start, StepEnd, StepStart, Text, UIEvent
from streamtools.outputs import validate
from streamtools.recording import shipped
from streamtools.stream import stored_result
from streamtools.stream.lost_run import end_lost_run, is_ending
from streamtools.stream.result import TurnResult
from streamtools.stream.stored_result import StoredEnd
from streamtools.tools import MemoryLedger, ToolOutcome
from streamtools.tools.ledger import Entry, call_key
from tests.serving.test_runs_resuming import TOOLS
from tests.support.approvals import ANN, QUESTION, Bank, calls
from tests.support.loops import ONE_LOOP


async def told(name: str) -> list[UIEvent]:
    """The events of a recording, or of a chat with all kinds of calls."""
    if name != "approval":
        return list(await replay(shipped()[name], tools=TOOLS))
    bank = Bank()
    said = calls(("look", {}), ("pay", ANN), ("nobody", {}), ("sign", {"text": "a"}))
    events = []
    async with chat(
        ScriptedModel([said, "Done."]), [QUESTION], tools=bank.tools, approvals=ApprovalOptions(ask="now")
    ) as stream:
        async for event in stream:
            events.append(event)
            for question in await stream.questions():
                if question.approval:
                    stream.approve(question.call.id)
                else:
                    stream.answer(question.call.id, {"pages": 1})
    return events


def numbered(events: list[UIEvent]) -> list[UIEvent]:
    """The events with seqs from 1."""
    return [replace(event, seq=seq) for seq, event in enumerate(events, 1)]


@ONE_LOOP
@pytest.mark.parametrize("share", [4, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("knows", ["nothing", "not begun", "begun", "ended"])
@pytest.mark.parametrize("name", [*sorted(shipped()), "approval"])
async def test_a_lost_run_ends_validly_after_any_event(name: str, knows: str, share: int) -> None:
    """It keeps the order, reports a failure, and gives each started call an outcome."""
    events = numbered(await told(name))
    every = [event.call for event in events if isinstance(event, Executing)]
    begun = {call_key(call): Entry(scope="r", call=call, began=0.0, until=0.0) for call in every}
    ended = {
        key: replace(
            entry, outcome=ToolOutcome(call=entry.call, result=1, text="1", error=None, message=None, elapsed=0.0)
        )
        for key, entry in begun.items()
    }
    known: dict[str, Any] = {"nothing": None, "not begun": {}, "begun": begun, "ended": ended}
    for at in range(len(events)):
        if at % share and type(events[at - 1]) is type(events[at]) is Text:
            continue
        said = events[:at]
        end, _ = end_lost_run("r", said, known[knows])
        validate([*said, *end])
        for cut in range(1, len(end)):  # the process that ends the run also crashes
            rest, _ = end_lost_run("r", [*said, *end[:cut]], known[knows])
            validate([*said, *end[:cut], *rest])
            assert isinstance(rest[-1], Done)
        done = end[-1]
        assert isinstance(done, Done)
        assert "failed" == done.reason
        stopped, _ = end_lost_run("r", said, known[knows], None)
        validate([*said, *stopped])
        assert isinstance(stopped[-1], Done)
        failures = [event for event in said if isinstance(event, Error) and event.call_id is None]
        assert stopped[-1].reason == ("failed" if failures else "cancelled")
        at_work = {event.call.id for event in said if isinstance(event, Executing)}
        over = {event.call.id for event in said if isinstance(event, Executed)}
        over |= {event.call_id for event in said if isinstance(event, Error) and event.call_id}
        ends = {event.call.id: event for event in end if isinstance(event, Executed)}
        faults = {event.call_id: event.code for event in end if isinstance(event, Error) and event.call}
        for id in at_work - over:
            if knows == "ended":
                assert id in ends
            else:
                assert faults[id] is (Code.TOOL_CANCELLED if knows == "not begun" else Code.OUTCOME_UNKNOWN)
    assert is_ending([StepStart(1), StepEnd(1, None)])
    assert [Start, Error, Done] == [type(event) for event in end_lost_run("r", [], known[knows])[0]]


@pytest.mark.parametrize("name", sorted(shipped()))
async def test_a_stored_result_is_equal(name: str) -> None:
    """Its messages are the same in every format."""
    async with replay(shipped()[name], tools=TOOLS) as stream:
        async for _ in stream:
            pass
    read = stored_result.load(stored_result.dump(StoredEnd(stream.result)))

    assert stream.result == read.result
    assert (None, []) == (read.suspension, read.history)
    for form in ("openai", "anthropic", "gemini", "responses"):
        assert stream.result.messages(form) == read.result.messages(form)


async def test_a_stored_suspension_is_equal() -> None:
    """With its suspension and its history."""
    bank, ledger = Bank(), MemoryLedger()
    model = ScriptedModel([calls(("look", {}), ("pay", ANN))])
    system = {"role": "system", "content": "Be brief."}
    stream = chat(
        model,
        [system, QUESTION],
        tools=bank.tools,
        approvals=ApprovalOptions(ask="later"),
        runner=RunnerOptions(ledger=ledger),
    )
    await stream
    assert stream.suspension is not None

    read = stored_result.load(stored_result.dump(StoredEnd(stream.result, stream.suspension, stream.history)))

    assert (stream.result, stream.suspension, stream.history) == tuple(read)[:3]


def test_a_stored_value_is_plain_data() -> None:
    """By the names of its type; unserializable values are omitted."""

    class Invoice(BaseModel):
        total: Decimal = Field(alias="sum")
        sent: date

    invoice = Invoice.model_validate({"sum": "1.50", "sent": "2026-11-24"})
    for output, plain in (
        (invoice, {"sum": "1.50", "sent": "2026-11-24"}),
        ([invoice], [{"sum": "1.50", "sent": "2026-11-24"}]),
        ({"a": 1}, {"a": 1}),
        (object(), None),
    ):
        read = stored_result.load(stored_result.dump(StoredEnd(TurnResult(text="x", output=output)))).result
        assert ("x", plain) == (read.text, read.output)
    assert invoice == Invoice.model_validate({"sum": "1.50", "sent": "2026-11-24"})
