"""The page in a browser: questions, visible answers, and reloads."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest

from streamtools.apps.web import Answerer, PageAnswer, app
from streamtools.conversation import ScriptedModel, chat
from streamtools.history import Message, User
from streamtools.tools import ToolRegistry, tool
from tests.browser.conftest import Browsing
from tests.browser.looking import answers, ask, ended, expect, text_of
from tests.support.answering import calling, delta, saying
from tests.support.loopback import Loopback

pytestmark = pytest.mark.browser


async def test_an_answer_streams_as_markdown(browsing: Browsing) -> None:
    """Received text is visible before the rest arrives."""
    go = anyio.Event()
    page = await browsing.open(saying("# Hello\n\nSome **bo", go, "ld** text\n\n- one\n- two\n"))
    await ask(page, "Hi")

    await expect(page.locator(".answer h1")).to_have_text("Hello")
    await expect(page.locator(".answer")).to_have_attribute("aria-busy", "true")
    await expect(page.locator("#stop")).to_be_visible()
    go.set()
    await ended(page)
    await expect(page.locator(".answer strong")).to_have_text("bold")
    await expect(page.locator(".answer li")).to_have_text(["one", "two"])
    await expect(page.locator("#send")).to_be_visible()
    await expect(page.locator("#status")).to_have_text("The answer is complete.")


async def test_a_card_changes_its_state(browsing: Browsing) -> None:
    """It is being written, complete, then executed. It shows short arguments and a short result."""
    first, second = anyio.Event(), anyio.Event()
    call = calling("look_up", city="Oslo")
    page = await browsing.open(saying("I look.\n\n", call[:50], first, call[50:], second), saying("It is 17 °C."))
    await ask(page, "Oslo?")

    card = page.locator(".card")
    await expect(card).to_have_attribute("data-state", "writing")
    await expect(card.locator(".name")).to_have_text("look_up")
    first.set()
    await expect(card).to_have_attribute("data-state", "ready")
    await expect(card.locator(".brief")).to_have_text('city: "Oslo"')
    second.set()
    await expect(card).to_have_attribute("data-state", "executed")
    await ended(page)
    await expect(card.locator(".said")).to_have_text("17 °C in Oslo")
    await expect(card.locator("details")).to_have_count(0)
    assert ["I look.", "It is 17 °C."] == await page.locator(".answer .prose").all_inner_texts()


class _Loading(Answerer):
    """Answers with a call of a tool that reports `progress` and ends after `go`."""

    label = "a script"

    def __init__(self, progress: Any, go: anyio.Event) -> None:
        @tool
        async def load() -> AsyncIterator[Any]:
            """Load a file."""
            yield progress
            await go.wait()
            yield {"rows": 3}

        self._tools = ToolRegistry(load)

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> PageAnswer:
        """Return the answer, with one call."""
        model = ScriptedModel([calling("load")])
        return PageAnswer(chat(model, [User(question)], tools=self._tools, follow_up="never"))


@pytest.mark.parametrize(
    ("progress", "value", "said"),
    [
        ({"percent": 23}, "23", "23 %"),
        ({"percent": 40.2, "message": "reading"}, "40.2", "40 % · reading"),
        ({"done": 2, "total": 5}, "2", "2 of 5"),
        ({"message": "connecting"}, None, "connecting"),
        ("half", None, "half"),
        ({"rows": 3}, None, '{"rows":3}'),
    ],
)
async def test_progress_fills_a_bar(browsing: Browsing, progress: Any, value: str | None, said: str) -> None:
    """Without a known amount, the bar has no value. Afterwards the card shows the result, also without a message."""
    go = anyio.Event()
    page = await browsing.open(answerer=_Loading(progress, go))
    await ask(page, "Load")

    await expect(page.locator(".card .said")).to_have_text(said)
    assert value == await page.locator(".card progress").get_attribute("value")
    go.set()
    await ended(page)
    await expect(page.locator(".card progress")).to_be_hidden()
    await expect(page.locator(".card .said")).to_have_text('{"rows":3}')


async def test_deltas_of_one_text_share_a_row(browsing: Browsing) -> None:
    """The row has their numbers and their text, also if it grows while the list is open."""
    go = anyio.Event()
    page = await browsing.open(saying("One ", "two ", go, "three."))
    await ask(page, "Count")
    await page.get_by_role("button", name="Events").click()
    row = page.locator("#events [data-type=text]")
    await expect(row.locator(".json")).to_have_text('"One two "')
    go.set()
    await ended(page)

    await expect(row).to_have_count(1)
    await expect(row.locator(".json")).to_have_text('"One two three."')
    await expect(row.locator(".seq")).to_have_text("3–5")
    await row.locator("summary").click()
    assert ["One ", "two ", "three."] == [
        json.loads(each)["text"] for each in (await row.locator("pre").inner_text()).split("\n")
    ]


async def test_a_reloaded_page_continues_the_answer(browsing: Browsing) -> None:
    """No text is lost or repeated, and earlier answers are shown."""
    go = anyio.Event()
    call = calling("look_up", city="Oslo")
    page = await browsing.open(saying("Before.\n\n", call), saying("One, "), saying("two, ", go, "three."))
    await ask(page, "First")
    await ended(page)
    await ask(page, "Second")
    await expect(page.locator(".answer").nth(1)).to_contain_text("two,")

    await page.reload()
    await expect(page.locator(".answer").nth(1)).to_contain_text("two,")
    await expect(page.locator("#stop")).to_be_visible()
    go.set()
    await ended(page, 2)

    assert ["First", "Second"] == await page.locator(".question").all_inner_texts()
    assert ["Before.\nOne,", "two, three."] == [await text_of(page, at) for at in range(2)]
    await expect(page.locator(".card")).to_have_count(1)
    await expect(page.locator(".card")).to_have_attribute("data-state", "executed")


async def test_the_page_reconnects_after_a_lost_connection(browsing: Browsing) -> None:
    """It continues after its last event."""
    go = anyio.Event()
    page = await browsing.open(saying("One, ", go, "two."))
    await ask(page, "Hi")
    await expect(page.locator(".answer")).to_contain_text("One,")
    await browsing.context.set_offline(True)
    await page.evaluate("running().left.abort(); running().left = new AbortController(); null")
    await expect(page.locator("#banner")).to_contain_text("The server cannot be reached")
    go.set()
    await browsing.context.set_offline(False)
    await ended(page)

    assert ["One, two."] == await answers(page)
    await expect(page.locator("#banner")).to_be_hidden()
    assert any(re.search(r"after=[1-9]", url) for url in browsing.requests)
    browsing.faults[:] = [each for each in browsing.faults if "ERR_INTERNET_DISCONNECTED" not in each]


async def test_a_lost_process_is_shown_until_the_answer_continues(browsing: Browsing) -> None:
    """The events are those of a run whose process was lost while it wrote a call."""
    page = await browsing.open()
    lost = {"type": "warning", "code": "owner_lost", "message": "lost"}
    events: list[dict[str, Any]] = [
        *({"type": "start", "run_id": "r"}, {"type": "step-start", "step": 1}, {"type": "text", "text": "It "}),
        *({"type": "thinking", "active": True, "call_id": "c"}, lost),
        *({"type": "error", "code": "superseded", "call_id": "c", "message": "over"}, {"type": "thinking"}),
        *(lost, {"type": "text", "text": "rains."}, lost, {"type": "done", "reason": "failed", "pending": []}),
    ]
    await page.evaluate("document.body.append((window.turn = new Turn('Weather?', 'r', () => {})).node)")
    seen = []
    for seq, event in enumerate(events, 1):
        await page.evaluate("(event) => { turn.take(event); turn.show(0); }", {**event, "seq": seq})
        seen.append(await page.locator(".answer").get_by_text("Reconnecting…").count())
    assert [0, 0, 0, 0, 1, 1, 1, 1, 0, 1, 0] == seen


async def test_two_tabs_show_one_conversation(browsing: Browsing) -> None:
    """Each tab shows the questions and answers of the other, and can stop them."""
    go = anyio.Event()
    page = await browsing.open(saying("One, ", go, "two."), saying("Wait", hold=True))
    other = await browsing.tab()
    await ask(page, "Hi")
    await expect(other.locator(".answer")).to_contain_text("One,")
    await expect(other.locator("#stop")).to_be_visible()
    go.set()
    await ended(page)
    await ended(other)
    assert ["One, two."] == await answers(page) == await answers(other)

    await ask(other, "More?")
    await expect(page.locator(".answer").nth(1)).to_contain_text("Wait")
    await page.locator("#stop").click()
    await ended(other, 2)


async def test_a_new_conversation_replaces_the_old_one(browsing: Browsing) -> None:
    """It begins with the next question. Until then, other tabs and a reloaded page show the old conversation."""
    answer = saying("One, ", hold=True)
    page = await browsing.open(answer, saying("Second."), saying("Third."))
    other = await browsing.tab()
    await ask(page, "First?")
    await expect(page.locator(".answer")).to_contain_text("One,")
    await page.locator("#question").fill("And then?")
    await page.locator("#question").press("Enter")
    await page.locator("#begin").click()
    await expect(page.locator(".turn")).to_have_count(0)
    await expect(page.locator("#empty")).to_be_visible()
    with anyio.fail_after(20):
        await answer.disconnected.wait()
    await ended(other)
    assert ["One,"] == await answers(other)
    await page.reload()
    await ended(page)
    await page.locator("#begin").click()
    await expect(page.locator(".turn")).to_have_count(0)
    await ask(page, "Another?")
    await ended(page)
    assert ["Second."] == await answers(page)
    await expect(other.locator(".question")).to_have_text(["Another?"])
    await ask(page, "More?")
    await ended(page, 2)
    await page.reload()
    await ended(page, 2)
    assert ["Second.", "Third."] == await answers(page)
    assert ["Another?"] == [each["content"] for each in browsing.provider.bodies[1]["messages"]]
    assert 3 == len(browsing.provider.bodies[2]["messages"])


async def test_a_new_conversation_waits_for_an_answer_in_another_tab(browsing: Browsing) -> None:
    """The page then shows the old conversation again, and keeps the question."""
    page = await browsing.open(saying("One."), saying("Wait", hold=True))
    other = await browsing.tab()
    await ask(page, "First?")
    await ended(page)
    await ended(other)
    await page.locator("#begin").click()
    await expect(page.locator(".turn")).to_have_count(0)
    await ask(other, "Second?")
    await expect(other.locator(".answer").nth(1)).to_contain_text("Wait")
    await expect(page.locator(".turn")).to_have_count(0)
    await ask(page, "Third?")
    await expect(page.locator("#banner")).to_contain_text("still being answered")
    await expect(page.locator(".answer").nth(1)).to_contain_text("Wait")
    await expect(page.locator("#question")).to_have_value("Third?")
    browsing.faults[:] = [each for each in browsing.faults if "409" not in each]


async def test_a_long_conversation_stays_on_the_page(browsing: Browsing, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server removes its first turns. A replaced turn is removed from the page."""
    monkeypatch.setattr(app, "MAX_TURNS", 2)
    page = await browsing.open(*(saying(text) for text in ("One.", "Two.", "Three.", "Four.")))
    other = await browsing.tab()
    for count, question in enumerate(("1?", "2?", "3?"), 1):
        await ask(page, question)
        await ended(page, count)
    await ended(other, 3)
    assert ["One.", "Two.", "Three."] == await answers(page) == await answers(other)
    await page.get_by_role("button", name="Ask again").nth(2).click()
    await expect(page.locator(".answer").nth(2)).to_contain_text("Four.")
    await expect(other.locator(".answer").nth(1)).to_contain_text("Four.")
    await page.reload()
    await ended(page, 2)
    assert ["Two.", "Four."] == await answers(page)


async def test_a_call_is_denied_also_after_a_reload(browsing: Browsing) -> None:
    """The model receives the reason, and the call does not run."""
    page = await browsing.open(saying(calling("pay", to="Ann", amount=50)), saying("As you wish."))
    await ask(page, "Pay Ann 50.")
    await expect(page.locator(".card")).to_have_attribute("data-state", "asking")
    await page.reload()
    await page.get_by_label("Reason for denying").fill("not before Monday")
    await page.get_by_role("button", name="Deny").click()
    await ended(page)

    await expect(page.locator(".card")).to_have_attribute("data-state", "denied")
    await expect(page.locator(".card")).to_contain_text("not before Monday")
    assert "not before Monday" in str(browsing.provider.bodies[1]["messages"])


@pytest.mark.parametrize(
    ("typed", "button", "state", "told"),
    [
        ("2027-03-01", "Send result", "executed", '"2027-03-01"'),
        ('{"day": 1}', "Send result", "executed", '{"day": 1}'),
        ("closed", "Report a failure", "failed", "closed"),
    ],
)
async def test_the_user_enters_a_tool_result(
    browsing: Browsing, typed: str, button: str, state: str, told: str
) -> None:
    """The page asks for the result, also after a reload, and the model receives it."""
    page = await browsing.open(saying(calling("pick_date", title="Departure")), saying("Noted."))
    await ask(page, "When?")
    await expect(page.get_by_role("button", name="Send result")).to_be_visible()
    await page.reload()
    await expect(page.locator(".asked")).to_contain_text('"title": "Departure"')
    await page.get_by_label("Result of the call").fill(typed)
    await page.get_by_role("button", name=button).click()
    await ended(page)
    await expect(page.locator(".card")).to_have_attribute("data-state", state)
    assert ["Noted."] == await answers(page)
    assert told.strip('"').replace(" ", "") in str(browsing.provider.bodies[1]["messages"][-1]).replace(
        " ", ""
    ).replace("\\", "")


async def test_a_question_during_an_answer_waits(browsing: Browsing) -> None:
    """Questions are sent in order after the answer, unless the user removes them."""
    go = anyio.Event()
    page = await browsing.open(saying("One, ", go, "two."), saying("Second."), saying("Third."))
    await ask(page, "First")
    await expect(page.locator(".answer")).to_contain_text("One,")
    for text in ("And then?", "No.", "And at last?"):
        await page.locator("#question").fill(text)
        await page.locator("#question").press("Enter")
    await expect(page.locator("#question")).to_have_value("")
    await page.get_by_role("button", name="Remove “No.”").click()
    await expect(page.locator("#queue span")).to_have_text(["And then?", "And at last?"])
    assert 1 == len(browsing.provider.requests)
    go.set()
    await ended(page, 3)
    await expect(page.locator("#queue")).to_be_hidden()
    assert ["First", "And then?", "And at last?"] == await page.locator(".question").all_inner_texts()
    assert ["One, two.", "Second.", "Third."] == await answers(page)


async def test_the_keyboard_reaches_everything(browsing: Browsing) -> None:
    """Tab reaches every control, and Enter approves a call."""
    page = await browsing.open(
        saying("```py\n1\n```\n\n[link](https://a.example)\n\n", calling("pay", to="Ann", amount=5)), saying("Done.")
    )
    await ask(page, "Pay.")
    await page.get_by_role("button", name="Approve").focus()
    await page.evaluate(
        """() => {
            const all = [...document.querySelectorAll("button, a[href]:not(.skip), summary, input, textarea")];
            window.missed = new Set(all.filter((each) => each.checkVisibility() && !each.disabled));
            document.addEventListener("focusin", ({ target }) => missed.delete(target));
        }"""
    )
    assert await page.evaluate("missed.size") > 10
    for _ in range(await page.evaluate("missed.size + 12")):  # includes regions that scroll
        await page.keyboard.press("Tab")
    assert [] == await page.evaluate("[...missed].map((each) => each.outerHTML)")
    await page.get_by_role("button", name="Approve").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator(".card")).to_have_attribute("data-state", "executed")


async def test_failures_are_shown_with_their_message(browsing: Browsing) -> None:
    """The page shows an error of the provider, or a lost connection. Received text stays."""
    refusal = Loopback([b'{"error":{"message":"no such model"}}'], status=404, declared="application/json")
    page = await browsing.open(refusal, Loopback([delta("As far as th")], drop=True))
    await ask(page, "Hi")
    await ended(page)
    await expect(page.locator(".ending")).to_have_text("The answer failed: no such model (status 404).")
    await ask(page, "Again")
    await ended(page, 2)
    await expect(page.locator(".ending").nth(1)).to_contain_text("The answer failed: ")
    await expect(page.locator(".prose")).to_have_text("As far as th")
