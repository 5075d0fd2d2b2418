"""Who answers on the page where no model was named: recordings of one, with their timing, and their tools.

A question that nobody has recorded is answered with what this is and how a model is named. One scene is written by
hand, because no recording has it: a tool that asks first and tells how far it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from streamtools import sources
from streamtools.cli.tools import TOOLS
from streamtools.conversation import Ask, Message, User, chat
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.recording import Recording, ReplayBytes, read_recording, shipped
from streamtools.sources import Source
from streamtools.tools import ToolContext, ToolRegistry, tool
from streamtools.web import Suggestion

FIRST = ("tilde-call", "two-tools", "headings", "quoted-markers", "cut-call")
"""Recordings in the order in which somebody should see them; the others follow."""

POSTCARD = Suggestion("postcard", "A tool that asks you first (written by hand)", "Send Ann a postcard from Lima.")

_PIECE = 4  # characters of a text that is written by hand, as a model would send it
_PAUSE = 0.012  # seconds between two pieces at the recorded speed

_ASKED = """I will send it; you only have to say yes.

~~~tool_call
{"name": "send_postcard", "arguments": {"to": "Ann", "text": "Greetings from Lima, where the fog is."}}
~~~
"""
_SENT = "Ann's postcard is on its way. (Nothing was sent: this scene is written by hand.)"
_NOT_SENT = "As you wish: nothing was sent."

_UNKNOWN = """Nobody has recorded an answer to that: this page plays **recordings** of a small model, because it was \
started without one. To talk to a model, start it with its name and address:

```
streamtools serve --model NAME \\
  --url http://127.0.0.1:8080/v1 \\
  --tools MODULE:REGISTRY
```

The recorded questions are above the box in which you write.
"""


class Recorded:
    """Plays what was recorded; `speed` is that of `ReplayBytes`."""

    def __init__(self, *, speed: float) -> None:
        names = dict.fromkeys([*FIRST, *shipped()])
        self._recordings = {name: read_recording(shipped()[name]) for name in names}
        self._speed = speed
        self.told = (
            f"recordings of {', '.join(dict.fromkeys(_body(each)['model'] for each in self._recordings.values()))}"
        )
        self.note = (
            "No model was named, so recorded answers are played, each by itself. The calls in them are run "
            "here, by two small tools whose weather is invented."
        )
        self.suggestions = [
            *(
                Suggestion(name, each.head.title, _body(each)["messages"][-1]["content"])
                for name, each in self._recordings.items()
            ),
            POSTCARD,
        ]

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> chat:
        """Return the recorded answer."""
        model = _Recorded(self._speed, self._find(question, suggestion))
        follow_up: Any = "auto" if model.is_postcard else "never"
        return chat(
            model,
            [User(question)],
            tools=_TOOLS,
            follow_up=follow_up,
            ask="now",
            call_deltas=True,
            tool_state=self._speed,
        )

    def _find(self, question: str, suggestion: str | None) -> Recording | Suggestion | None:
        asked = [each for each in self.suggestions if suggestion == each.name]
        asked += [each for each in self.suggestions if suggestion is None and _same(each.question, question)]
        if not asked:
            return None
        return POSTCARD if asked[0] == POSTCARD else self._recordings[asked[0].name]


class _Recorded:
    """A model that says what was found for one question."""

    native_tool_calls = None

    def __init__(self, speed: float, found: Recording | Suggestion | None) -> None:
        self.name = "recorded"
        self.is_postcard = found == POSTCARD
        self._speed = speed
        self._found = found

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return nothing: nothing is sent."""
        return {}

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Source]:
        """Answer."""
        if isinstance(self._found, Recording):
            bytes_ = ReplayBytes(self._found, speed=self._speed)
            source = Source(bytes_, sources.adapter(self._found.head.source))
        else:
            source = sources.events(self._write(self._words(ask)))
        try:
            yield source
        finally:
            await source.aclose()

    def _words(self, ask: Ask) -> str:
        if not self.is_postcard:
            return _UNKNOWN
        if len(ask.history) == 1:
            return _ASKED
        return _NOT_SENT if "denied" in str(ask.history[-1]) else _SENT

    async def _write(self, text: str) -> AsyncIterator[SourceEvent]:
        for start in range(0, len(text), _PIECE):
            await anyio.sleep(_PAUSE / self._speed if self._speed else 0)
            yield TextDelta(text[start : start + _PIECE])
        yield ProviderCompleted(finish_reason="stop")


@tool(requires_approval=True)
async def send_postcard(to: str, text: str, context: ToolContext) -> AsyncIterator[Any]:
    """Send a postcard. Nothing is sent."""
    for done, what in enumerate(("printing", "stamping", "sending"), 1):
        yield {"step": what, "done": done, "of": 3}
        await anyio.sleep(0.3 / context.state if context.state else 0)
    yield {"to": to, "message": f"to {to}: {text}"}


_TOOLS = ToolRegistry(*TOOLS, send_postcard)


def _body(recording: Recording) -> dict[str, Any]:
    assert recording.head.request is not None
    body: dict[str, Any] = recording.head.request.body
    return body


def _same(one: str, other: str) -> bool:
    return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()
