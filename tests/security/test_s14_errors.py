"""S14: the text of an exception reaches no front end, in no format. Its type is logged.

`test_tool_secrets.py` tests tools. This module tests all other code that can raise, and each encoder.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from streamtools import chat, outputs, sources
from streamtools.conversation import OpenAIChat, ScriptedModel
from streamtools.events import UIEvent
from streamtools.outputs import Encoder
from streamtools.tools import Tool, ToolContext
from tests.support.approvals import calls
from tests.support.cases import together
from tests.support.options import grouped

pytestmark = pytest.mark.anyio

SECRET = "hunter2-s3cret"
ENCODERS: list[Callable[[], Encoder]] = [
    lambda: outputs.native(exclude=()),
    lambda: outputs.native(framing="ndjson", exclude=()),
    outputs.ai_sdk,
    outputs.ag_ui,
    outputs.openai,
    outputs.text,
]


class Leaky(Exception):
    """An exception that shows its secret in each representation."""

    def __init__(self) -> None:
        super().__init__(SECRET)
        self.add_note(SECRET)

    __str__ = __repr__ = lambda self: SECRET


def fail(*_: Any, **__: Any) -> Any:
    raise Leaky


async def afail(*_: Any, **__: Any) -> Any:
    raise Leaky


def tool() -> str:
    """Raise."""
    raise Leaky


async def generator() -> AsyncIterator[int]:
    """Raise after the first value."""
    yield 1
    raise Leaky


async def progress(context: ToolContext) -> None:
    """Report progress that cannot be serialized."""
    await context.progress({SECRET: Leaky()})


def calling(name: str) -> ScriptedModel:
    return ScriptedModel([calls((name, {})), "Well."])


async def broken() -> AsyncIterator[bytes]:
    yield b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    raise Leaky


class Broken(ScriptedModel):
    """A response whose network fails in the middle."""

    def stream(self, ask: Any) -> Any:
        class Opened:
            async def __aenter__(self) -> Any:
                return sources.openai(broken())

            async def __aexit__(self, *_: object) -> None:
                pass

        return Opened()


def refused(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError(SECRET, request=request)


def unreachable() -> OpenAIChat:
    client = httpx.AsyncClient(transport=httpx.MockTransport(refused))
    return OpenAIChat("m", base_url=f"http://ann:{SECRET}@x/?key={SECRET}", api_key=SECRET, client=client, retries=0)


PLACES: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "a tool": lambda: (calling("tool"), {"tools": [tool]}),
    "a generator": lambda: (calling("generator"), {"tools": [generator]}),
    "progress": lambda: (calling("progress"), {"tools": [progress]}),
    "a predicate": lambda: (calling("tool"), {"tools": [Tool(tool, requires_approval=afail)]}),
    "a hook": lambda: (calling("tool"), {"tools": [tool], "on_tool_result": afail}),
    "a hook that does not wait": lambda: (calling("tool"), {"tools": [tool], "on_tool_result": fail}),
    "a review": lambda: (calling("tool"), {"tools": [tool], "review": afail}),
    "a stream": lambda: (Broken([]), {}),
    "a connection": lambda: (unreachable(), {}),
}


@together("place", PLACES)
async def test_no_encoder_writes_the_text_of_an_exception(place: str) -> None:
    """It is not in an event, in the result, or in the messages for the model."""
    model, options = PLACES[place]()
    told: list[UIEvent] = []
    stream = chat(model, [{"role": "user", "content": "Hi"}], **grouped(**options))
    try:
        async with stream as events:
            async for event in events:
                told.append(event)
    except Leaky:
        assert place == "a review", "what the application's own code raises is raised to the application"
    written = [event.to_json() for event in told] + [repr(told)]
    for make in ENCODERS:
        encoder = make()
        written.append((b"".join(map(encoder.encode, told)) + encoder.close()).decode())

    assert "done" == told[-1].type
    assert [] == [each for each in written if SECRET in each]
    assert [] == [each for each in written if "Traceback" in each or ".py" in each]
    assert SECRET not in repr(getattr(stream, "result", ""))
