"""The server of the page: conversations, their runs, and decisions about calls."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from streamtools.apps.web import Answerer, PageAnswer, app
from streamtools.conversation import Ask, ScriptedModel, chat
from streamtools.history import Message, User
from streamtools.sources import Source
from tests.support.answering import calling, opened, saying
from tests.support.loopback import Loopback

pytestmark = pytest.mark.asyncio_only


def text_of(events: list[dict[str, object]]) -> str:
    """Return the joined text of the events."""
    return "".join(str(event["text"]) for event in events if event["type"] == "text")


async def test_a_question_is_sent_with_the_history() -> None:
    """A page can read each run from any position."""
    async with opened(saying("The first ", "answer."), saying("The second.")) as page:
        first = await page.ask("One?")
        events = await page.events(first)
        second = await page.ask("Two?")
        await page.events(second)
        known = await page.state()
        rest = await page.events(first, after=events[3]["seq"])

        assert [{"role": "user", "content": "One?"}] == page.provider.bodies[0]["messages"]
        assert ["One?", "The first answer.", "Two?"] == [
            each["content"] for each in page.provider.bodies[1]["messages"]
        ]
    assert "The first answer." == text_of(events)
    assert list(range(1, len(events) + 1)) == [event["seq"] for event in events]
    assert events[4:] == rest
    turns = [{"run": first, "question": "One?"}, {"run": second, "question": "Two?"}]
    assert [{**turn, "recorded": False} for turn in turns] == known["turns"]
    assert ("a provider of the tests", "It is on this machine.") == (known["label"], known["note"])
    assert [{"name": "weather", "title": "One call", "question": "What is the weather in Oslo?"}] == known[
        "suggestions"
    ]


async def test_a_question_replaces_an_earlier_question() -> None:
    """All later turns are removed. A replaced first question begins a conversation."""
    async with opened(*(saying(text) for text in ("One.", "Two.", "Three.", "Four.", "Five."))) as page:
        runs = []
        for question in ("1?", "2?", "3?"):
            runs.append(await page.ask(question))
            await page.events(runs[-1])
        again = await page.post("/runs", {"question": "2!", "replace": runs[1]})
        await page.events(again.json()["run"])
        known = await page.state()
        gone = await page.post("/runs", {"question": "3!", "replace": runs[2]})
        first = await page.post("/runs", {"question": "1!", "replace": runs[0]})
        await page.events(first.json()["run"])
        begun = await page.state()

        assert ["1?", "One.", "2!"] == [each["content"] for each in page.provider.bodies[3]["messages"]]
        assert ["1!"] == [each["content"] for each in page.provider.bodies[4]["messages"]]
    assert [runs[0], again.json()["run"]] == [each["run"] for each in known["turns"]]
    assert [first.json()] == begun["turns"]
    assert (409, True) == (gone.status_code, "no longer in this conversation" in gone.text)


async def test_a_conversation_has_one_answer_at_a_time() -> None:
    go = anyio.Event()
    async with opened(saying("Wait", go, "."), saying("Other.")) as page:
        run = await page.ask("One?")
        refused = await page.post("/runs", {"question": "Two?"})
        go.set()
        await page.events(run)
        await page.ask("Two?")
    assert 409 == refused.status_code
    assert "still being answered" in refused.text


async def test_one_of_two_simultaneous_questions_is_refused() -> None:
    async with opened(saying("Hello."), saying("Wait", hold=True)) as page:
        await page.events(await page.ask("One?"))
        statuses = []

        async def ask() -> None:
            statuses.append((await page.post("/runs", {"question": "Two?"})).status_code)

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask)
        await page.until((await page.state())["turns"][-1]["run"], "Wait")

        assert [201, 409, 409] == sorted(statuses)


async def test_a_question_waits_until_the_last_run_is_closed() -> None:
    """After `done`, a run may still be closing its source."""
    go = anyio.Event()

    class SlowToClose(ScriptedModel):
        """A model whose response takes time to close."""

        @asynccontextmanager
        async def stream(self, ask: Ask) -> AsyncIterator[Source]:
            async with super().stream(ask) as source:
                yield source
            await go.wait()

    class FixedAnswers(Answerer):
        """Answers each question with "Yes."."""

        def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> PageAnswer:
            return PageAnswer(chat(SlowToClose(["Yes."]), [*history, User(question)]))

    async with opened(answerer=FixedAnswers()) as page:
        await page.until(await page.ask("One?"), '"done"')
        statuses = []

        async def ask() -> None:
            statuses.append((await page.post("/runs", {"question": "Two?"})).status_code)
            go.set()

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)

    assert [409, 201] == statuses


async def test_stop_waits_until_the_source_is_closed() -> None:
    """The partial answer stays in the history."""
    answer = saying("As far as th", hold=True)
    async with opened(answer, saying("Yes.")) as page:
        run = await page.ask("One?")
        await page.until(run, "As far as")
        response = await page.post(f"/runs/{run}/stop")
        with anyio.fail_after(10):
            await answer.disconnected.wait()
        events = await page.events(run)
        again = await page.post(f"/runs/{run}/stop")

    assert (200, {"reason": "cancelled"}) == (response.status_code, response.json())
    assert ("done", "cancelled") == (events[-1]["type"], events[-1]["reason"])
    assert 200 == again.status_code


async def test_a_question_without_an_answer_is_not_sent_again() -> None:
    async with opened(Loopback([b"{}"], status=400, declared="application/json"), saying("Yes.")) as page:
        failed = await page.events(await page.ask("One?"))
        assert ("done", "failed") == (failed[-1]["type"], failed[-1]["reason"])
        await page.events(await page.ask("Two?"))
        assert ["Two?"] == [each["content"] for each in page.provider.bodies[-1]["messages"]]


async def test_the_user_can_answer_a_call() -> None:
    async with opened(saying(calling("pick_date", title="Departure")), saying("Noted.")) as page:
        assert ["pick_date"] == (await page.state())["client_tools"]
        run = await page.ask("When?")
        call = json.loads(await page.until(run, '"executing"'))["call"]["id"]
        path = f"/runs/{run}/calls/{call}"
        refused: list[dict[str, Any]] = [{}, {"decision": "perhaps"}, {"decision": "answer", "error": 1}]
        assert [400, 400, 400] == [(await page.post(path, each)).status_code for each in refused]
        assert 200 == (await page.post(path, {"decision": "answer", "result": None})).status_code
        assert 409 == (await page.post(path, {"decision": "answer", "error": "closed"})).status_code
        (executed,) = [each for each in await page.events(run) if each["type"] == "executed"]
    assert executed["result"] is None


async def test_an_approval_contains_the_shown_digest() -> None:
    """The call runs once, and a second click gets the same response."""
    call = calling("pay", to="Ann", amount=50)
    async with opened(saying(call), saying("Done.")) as page:
        run = await page.ask("Pay Ann.")
        asked = json.loads(await page.until(run, '"approval-requested"'))
        path = f"/runs/{run}/calls/{asked['call']['id']}"
        approve = {"decision": "approve", "digest": asked["digest"]}
        changed = await page.post(path, approve | {"digest": "of another call"})
        nothing = await page.post(path, {"decision": "approve"})
        other = await page.post(f"/runs/{run}/calls/call_x", approve)
        approved, twice = [await page.post(path, approve) for _ in range(2)]
        events = await page.events(run)

    assert [409, 400, 409, 200, 200] == [each.status_code for each in (changed, nothing, other, approved, twice)]
    assert ["paid 50 to Ann"] == [event["result"] for event in events if event["type"] == "executed"]


async def test_a_denial_is_sent_to_the_model_with_its_reason() -> None:
    async with opened(saying(calling("pay", to="Ann", amount=50)), saying("As you wish.")) as page:
        run = await page.ask("Pay Ann.")
        call_id = json.loads(await page.until(run, '"approval-requested"'))["call"]["id"]
        denied = await page.post(f"/runs/{run}/calls/{call_id}", {"decision": "deny", "reason": "too much"})
        events = await page.events(run)
        assert 200 == denied.status_code
        assert ["tool_denied"] == [event["code"] for event in events if event["type"] == "error"]
        assert "too much" in str(page.provider.bodies[1]["messages"])


async def test_an_unknown_cookie_is_not_used() -> None:
    """A cookie may be forged, so the browser gets a new cookie."""
    async with opened(saying("Yes."), saying("Yes.")) as page:
        cookies = []
        for _ in range(2):
            page.client.cookies.clear()
            page.client.cookies.set("streamtools", "forged")
            asked = await page.post("/runs", {"question": "One?"})
            cookies.append(asked.cookies["streamtools"])
    assert 2 == len({*cookies} - {"forged"})


async def test_the_number_of_turns_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first turns are removed."""
    monkeypatch.setattr(app, "MAX_TURNS", 2)
    async with opened(*(saying("Yes.") for _ in range(3))) as page:
        runs = []
        for question in ("One?", "Two?", "Three?"):
            runs.append(await page.ask(question))
            await page.events(runs[-1])
        known = await page.state()
    assert runs[1:] == [turn["run"] for turn in known["turns"]]
