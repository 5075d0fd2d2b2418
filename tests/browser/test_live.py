"""A real model in the browser: a question, a call that it writes, and what the tool said. See `tests/live`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streamtools import ApprovalOptions, ParserOptions
from streamtools.conversation import Message, OpenAIChat, RequestOptions, User, chat
from tests.browser.conftest import Browsing
from tests.browser.looking import ask, ended, expect
from tests.live.conftest import server
from tests.live.test_chat import EXAMPLES, get_weather

pytestmark = [pytest.mark.live, pytest.mark.anyio]

__all__ = ["server"]  # a fixture


class Live:
    """Answers by a model behind a server, as `streamtools serve --dialect tilde_fence --few-shot` does."""

    label = "a real model"
    note = ""
    suggestions = ()

    def __init__(self, url: str) -> None:
        self._url = url

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> chat:
        """Return the answer."""
        model = OpenAIChat("any", base_url=f"{self._url}/v1", api_key="", native_tool_calls=False, stream_options=None)
        options = {"temperature": 0, "seed": 7, "max_tokens": 80, "stop": ["<|im_end|>"], "cache_prompt": False}
        return chat(
            model,
            [*history, User(question)],
            tools=[get_weather],
            dialects=["tilde_fence"],
            request=RequestOptions(body=options, few_shot=EXAMPLES),
            max_steps=3,
            approvals=ApprovalOptions(ask="now"),
            parser=ParserOptions(call_deltas=True),
        )


async def test_a_real_question_and_a_real_call(server: str, browsing: Browsing) -> None:
    """The card is executed, and the answer holds the figure that the tool gave."""
    page = await browsing.open(answerer=Live(server))
    await ask(page, "What is the weather in Paris?")
    await expect(page.locator(".card")).to_have_attribute("data-state", "executed", timeout=120_000)
    await expect(page.locator(".answer[aria-busy]")).to_have_count(0, timeout=120_000)
    await ended(page)

    await expect(page.locator(".card .brief")).to_have_text('city: "Paris"')
    await expect(page.locator(".answer .prose").last).to_contain_text("17")
