"""The histories of streams: of the shipped recordings, and of the answers of all providers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamtools import ToolStream, sources
from streamtools.history import Message, User
from streamtools.history.parts import steps_to_history
from streamtools.recording import read_recording, shipped
from streamtools.stream.result import TurnResult
from tests.support.provider_streams import PROVIDERS


def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


def clock(zone: str, seconds: bool = False) -> str:
    """Tell the time."""
    return f"{zone}, {seconds}"


def get_weather(city: str) -> dict[str, str]:
    """Tell the weather, too."""
    return {"city": city}


def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


async def recorded() -> dict[str, TurnResult]:
    """Return the result of each stream with its calls run, by the name of its recording or adapter."""
    bodies = {name: read_recording(path).data for name, path in shipped().items()}
    bodies |= {each.adapter: each.body for each in PROVIDERS}
    results = {}
    for name, body in bodies.items():
        dialects = "auto" if name in shipped() else ()
        tools: list[Callable[..., Any]] = [weather, clock, get_weather, add]
        events = ToolStream(sources.detect([body]), tools=tools, dialects=dialects)
        await events
        results[name] = events.result
    return results


def history_of(result: TurnResult) -> list[Message]:
    """Return the messages of a run, between two user messages."""
    return [User("Hi"), *steps_to_history(result.steps), User("And now?")]
