"""What every front end shows: `useChat`, AG-UI's own client, CopilotKit and `@streamtools/client`, in Chromium."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, get_args

import anyio
import pytest

from tests.browser.front_ends import FrontEnd, Kind, opened
from tests.browser.looking import expect
from tests.support.chat_chunks import chunk
from tests.support.loopback import Loopback
from tests.support.talks import ends, native, refuses, says

pytestmark = [pytest.mark.browser, pytest.mark.anyio]

PAY = ("pay", {"to": "Ann", "amount": 50})

Open: TypeAlias = Callable[..., AbstractAsyncContextManager[FrontEnd]]


@pytest.fixture(params=get_args(Kind))
def open(request: pytest.FixtureRequest, chromium: Any, pages: dict[Kind, Path]) -> Open:
    """What opens a page, given the answers of a model."""
    return partial(opened, chromium, pages, request.param)


async def test_reasoning(open: Open) -> None:
    """It is seen beside the answer."""
    thinks = [chunk({"reasoning_content": "Who is it? "}), chunk({"reasoning_content": "It is Ann."})]
    async with open(Loopback([*thinks, chunk({"content": "Hello, Ann."}), *ends("stop", None)])) as front:
        await front.ask("Hi")
        await front.ended("Hello, Ann.")
        await front.sees_reasoning("Who is it? It is Ann.")
        assert [] == front.faults


async def test_input_grows(open: Open) -> None:
    """The arguments of a call are seen while the model writes them."""
    goes_on = anyio.Event()
    begins = chunk({"tool_calls": [native(0, "pay", '{"amount": 50, "to": "Ann Mil')]})
    more = chunk({"tool_calls": [{"index": 0, "function": {"arguments": 'ton"}'}}]})
    async with open(Loopback([begins, goes_on, more, *ends("tool_calls", None)])) as front:
        await front.ask("Pay.")
        await expect(front.page.locator(".call")).to_contain_text("Ann Mil")
        await expect(front.page.locator(".call")).not_to_contain_text("Milton")
        goes_on.set()
        await front.asked()
        await expect(front.page.locator(".call")).to_contain_text("Ann Milton")
        assert [] == front.faults


async def test_an_error_of_the_provider(open: Open) -> None:
    """It is seen, and the next question is answered."""
    async with open(refuses(404, "no such model"), says("On.")) as front:
        await front.ask("Hi")
        await front.ended("no such model", status="error")
        await front.ask("Again?")
        await front.ended("On.")
        assert ["Hi", "Again?"] == [said for role, said in front.told() if role == "user"]


async def test_stop(open: Open) -> None:
    """The provider is left at once; what had come stays, and the next question is answered."""
    held = Loopback([chunk({"content": "As far as th"})], hold=True)
    async with open(held, says("On.")) as front:
        await front.ask("More?")
        await front.sees("As far as th")
        await front.stop()
        await held.disconnected.wait()
        await front.ended("As far as th")
        await front.ask("And now?")
        await front.ended("On.")
        assert ["More?", "As far as th", "And now?"] == [said for _, said in front.told()]
        assert [] == front.faults


async def test_the_page_is_loaded_anew(open: Open) -> None:
    """In the midst of an answer, which goes on where it is."""
    goes_on = anyio.Event()
    async with open(says("It is ", goes_on, "warm."), says("You are welcome.")) as front:
        await front.ask("How warm?")
        await front.sees("It is")
        await front.page.reload()
        await front.sees("It is")
        goes_on.set()
        await front.ended("It is warm.")
        await front.ask("Thanks!")
        await front.ended("You are welcome.")
        assert ["How warm?", "It is warm.", "Thanks!"] == [said for _, said in front.told()]
        assert [] == front.faults
