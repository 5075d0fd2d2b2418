"""A bot for a chat service: one message, which is edited while the answer grows.

Such services allow a few edits a second. So the message is edited when there is new text and some time has passed
since the last edit, and again at the end. A call is a line below the text while it runs. `BOT_URL` is an API like
those of chat services: `POST /messages` returns an id, `PATCH /messages/{id}` replaces the text.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator

import anyio
import httpx

from streamtools import UiTexts, chat, tool
from streamtools.conversation import Chat, Model, OpenAIChat

PAUSE = 0.4  # seconds between two edits
TEXTS = UiTexts()


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Tell the weather in a city."""
    return {"message": f"18 °C in {city}"}


async def states(events: Chat) -> AsyncIterator[str]:
    """Yield the text of the message after each event that changes it."""
    text = line = ""
    shown = "…"
    async for event in events:
        if event.type == "step-start" and text:
            text = f"{text.rstrip()}\n\n"
        elif event.type == "text":
            text, line = text + event.text, ""
        elif event.type == "error":
            line = f"⚠ {event.message}"
        elif (words := TEXTS.render(event)) is not None:
            line = words
        if (now := f"{text.rstrip()}\n{line}".strip() or "…") != shown:
            shown = now
            yield now


async def reply(bot: httpx.AsyncClient, model: Model, question: str, pause: float = PAUSE) -> str:
    """Answer a question in one message of the service, and return its final text."""
    created = await bot.post("/messages", json={"text": "…"})
    address = f"/messages/{created.raise_for_status().json()['id']}"
    last = sent = "…"
    edited = anyio.current_time()
    async with chat(model, [{"role": "user", "content": question}], tools=[get_weather]) as events:
        async for state in states(events):
            last = state
            if anyio.current_time() - edited >= pause:
                await bot.patch(address, json={"text": last})
                sent, edited = last, anyio.current_time()
    if sent != last:
        await bot.patch(address, json={"text": last})
    return last


async def main(question: str) -> None:
    """Answer one question."""
    model = OpenAIChat(os.environ.get("MODEL", "default"), base_url=os.environ["MODEL_URL"], native_tool_calls=False)
    async with httpx.AsyncClient(base_url=os.environ["BOT_URL"]) as bot:
        await reply(bot, model, question)


if __name__ == "__main__":
    anyio.run(main, " ".join(sys.argv[1:]) or "What is the weather in Paris?")
