"""`streamtools serve`: a page on this machine for talking to a model and watching what streams.

Where no model is named, recordings of one answer, with their timing and their tools. A question that nobody has
recorded is answered with what this is and how a model is named. One scene is written by hand, because no recording has
it: a tool that asks first and tells how far it is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TextIO

import anyio

from streamtools import sources
from streamtools.apps.cli.arguments import Serve
from streamtools.apps.cli.complaints import Complaints, Refused
from streamtools.apps.cli.demo import TOOLS, body_of, models_of
from streamtools.apps.cli.listening import is_here, listen, name_of, needing_a_server, run_server, workers
from streamtools.apps.cli.model_arguments import NamedModel, import_tools
from streamtools.apps.web import Suggestion
from streamtools.conversation import Ask, Message, User, chat
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.recording import Recording, ReplayBytes, read_recording, shipped
from streamtools.sources import Source
from streamtools.tools import ToolContext, ToolRegistry, tool

if TYPE_CHECKING:
    from streamtools.apps.web import Answerer


def run_serve(asked: Serve, output: TextIO, complaints: Complaints) -> int:
    """Serve the page until the process gets a signal to end, and return the exit status."""
    with needing_a_server("the page"):
        from streamtools.apps.web import make_app, reach
    if asked.redis is not None:
        _look_for(reach, asked.redis)
    answerer: Answerer = Recorded(speed=asked.speed) if asked.model is None else _Model(asked)
    listener = listen(asked.host, asked.port)
    with listener:
        port = listener.getsockname()[1]
        app = make_app(
            answerer,
            cookie=f"streamtools_{port}" if asked.redis is None else "streamtools",
            hosts=[each.lower() for each in (asked.host, *asked.allowed)],
            redis=asked.redis,
        )
        if not is_here(listener):
            complaints.write(f"whoever reaches {name_of(asked.host)} can talk to the model and run the tools")
        banner = f"{answerer.label}: http://{name_of(asked.host)}:{port}/ (Ctrl-C ends it)"
        with workers(asked.workers - 1, lambda: run_server(app, listener, "", output)):
            run_server(app, listener, banner, output)
    return 0


def _look_for(reach: Callable[[str], Awaitable[None]], redis: str) -> None:
    """Raise `Refused` where this is no server on which processes can share their runs."""
    try:
        anyio.run(reach, redis)
    except ImportError as error:
        raise Refused(f'--redis needs {error.name}: pip install "streamtools[cli,web,redis]"') from None
    except Exception as error:  # without the URL, which may have a password in it
        raise Refused(f"--redis names no server of use: {type(error).__name__}: {error}", status=1) from error


class _Model:
    """Answers by a model that the command line names."""

    note = ""
    suggestions: Sequence[Suggestion] = ()

    def __init__(self, asked: Serve) -> None:
        tools = import_tools(asked.tools) if asked.tools is not None else None
        self._named = NamedModel(asked, tools)
        self.label = self._named.label
        self.client_tools = [each.name for each in tools or () if each.client]

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> chat:
        named = self._named
        before = [*named.beginning, *history, User(question)]
        return named.chat(before, named.model(), ask="now", call_deltas=True)


FIRST = ("tilde-call", "two-tools", "headings", "quoted-markers", "cut-call")
"""Recordings in the order in which the page offers them; the others follow."""

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
        self.label = f"recordings of {', '.join(models_of(self._recordings.values()))}"
        self.note = (
            "No model was named, so recorded answers are played, each by itself. The calls in them are run "
            "here, by two small tools whose weather is invented."
        )
        self.suggestions = [
            *(
                Suggestion(name, each.head.title, body_of(each)["messages"][-1]["content"])
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
        if suggestion is not None:
            asked = [each for each in self.suggestions if each.name == suggestion]
        else:
            asked = [each for each in self.suggestions if _words(each.question) == _words(question)]
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
        return {}

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Source]:
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


def _words(text: str) -> list[str]:
    return text.casefold().split()
