"""`streamtools serve`: a page on this machine for talking to a model and watching what streams.

Where no model is named, recordings of one answer, with their timing and their tools. A question that nobody has
recorded is answered with what this is and how a model is named. One scene is written by hand, because no recording has
it: a tool that asks first and tells how far it is.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import anyio
import httpx

from streamtools import ApprovalOptions, ParserOptions, RunnerOptions, StreamOptions, sources
from streamtools.apps.cli.arguments import Serve
from streamtools.apps.cli.complaints import Complaints, Refused
from streamtools.apps.cli.demo import TOOLS, models_of
from streamtools.apps.cli.listening import is_here, listen, name_of, needing_a_server, run_server
from streamtools.apps.cli.named_model import NamedModel, import_tools, proxy_for
from streamtools.apps.web import Suggestion, question_of
from streamtools.conversation import Ask, Chat, Message, User, chat
from streamtools.conversation.models.http_model import HTTPModel
from streamtools.errors import RecordingError
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.recording import Head, RecordingTransport, ReplayBytes, shipped
from streamtools.recording.event_replay import adapter_of
from streamtools.recording.exchanges import open_exchange
from streamtools.sources import Source
from streamtools.tools import ToolContext, ToolRegistry, tool

if TYPE_CHECKING:
    from streamtools.apps.web import Answerer


def run_serve(asked: Serve, output: TextIO, complaints: Complaints) -> int:
    """Serve the page until the process gets a signal to end, and return the exit status."""
    with needing_a_server("the page"):
        import streamtools.apps.web  # noqa: F401 - to see whether it can be
    with TemporaryDirectory(prefix="streamtools-", ignore_cleanup_errors=True) as directory:
        playing = asked.model is None
        answerer = Recorded(asked.files, speed=asked.speed) if playing else _Model(asked, Path(directory))
        _serve(asked, answerer, output, complaints)
    return 0


def _serve(asked: Serve, answerer: Answerer, output: TextIO, complaints: Complaints) -> None:
    from streamtools.apps.web import make_app

    with listen(asked.host, asked.port) as listener:
        port = listener.getsockname()[1]
        hosts = [each.lower() for each in (asked.host, *asked.allowed)]
        app = make_app(answerer, cookie=f"streamtools_{port}", hosts=hosts)
        if not is_here(listener):
            complaints.write(f"whoever reaches {name_of(asked.host)} can talk to the model and run the tools")
        page = f"debugger?{urlencode({'of': answerer.suggestions[0].name})}" if asked.files else ""
        banner = f"{answerer.label}: http://{name_of(asked.host)}:{port}/{page} (Ctrl-C ends it)"
        run_server(app, listener, banner, output)


class _Model:
    """Answers by a model that the command line names. What it sends is recorded in `directory`."""

    note = ""
    suggestions: Sequence[Suggestion] = ()

    def __init__(self, asked: Serve, directory: Path) -> None:
        tools = import_tools(asked.tools) if asked.tools is not None else None
        self._named = NamedModel(asked, tools)
        self.label = self._named.label
        self.client_tools = [each.name for each in tools or () if each.client]
        self.tools = _told(tools)
        self.parameters = [name for name in ("temperature", "max_tokens") if name not in asked.options]
        self._directory = directory
        self._files: WeakKeyDictionary[chat, Path] = WeakKeyDictionary()
        self._written: deque[Path] = deque()

    def answer(
        self,
        question: str,
        history: Sequence[Message],
        *,
        suggestion: str | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> chat:
        named = self._named
        before = [*named.beginning, *history, User(question)]
        path = self._directory / f"{secrets.token_hex(8)}.jsonl"
        client: Any = _Recorder(path, named.model())  # a model asks by `stream` alone
        options: StreamOptions = {"approvals": ApprovalOptions(ask="now"), "parser": ParserOptions(call_deltas=True)}
        answer = named.chat(before, named.model(client), request=request, **options)
        self._files[answer] = path
        self._written.append(path)
        if len(self._written) > MOST_ANSWERS:
            self._written.popleft().unlink(missing_ok=True)
        return answer

    def recording_of(self, answer: Chat) -> Path | None:
        return self._files.get(answer)


class _Recorder:
    """A client that records what it asks and is answered, one exchange behind the other, as far as there is room."""

    def __init__(self, path: Path, model: HTTPModel) -> None:
        self._path = path
        self._url, self._source = model.url, model.source

    @asynccontextmanager
    async def stream(self, *asked: Any, **options: Any) -> AsyncIterator[httpx.Response]:
        room = MOST_RECORDED - (self._path.stat().st_size if self._path.exists() else 0)
        inner = httpx.AsyncHTTPTransport(proxy=proxy_for(self._url))
        with self._path.open("ab") as file:
            transport = RecordingTransport(inner, file, source=self._source) if room > 0 else inner
            async with httpx.AsyncClient(transport=transport) as client, client.stream(*asked, **options) as response:
                yield response


MOST_ANSWERS = 100
"""Answers whose recordings are kept; an older one is deleted."""
MOST_RECORDED = 16 * 1024 * 1024
"""Bytes of an answer's recording behind which no further request is written."""

FIRST = ("tilde-call", "two-tools", "headings", "quoted-markers", "cut-call")
"""Recordings in the order in which the page offers them; the others follow."""

POSTCARD = Suggestion("postcard", "A tool that asks you first (written by hand)", "Send Ann a postcard from Lima.")

_OF_FILES = "Recorded answers are played, each by itself. The calls in them are not run."
_OF_OURS = (
    "No model was named, so recorded answers are played, each by itself. The calls in them are run here, by two small "
    "tools whose weather is invented."
)

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
    """Plays what was recorded, in these files or those of the package; `speed` is that of `ReplayBytes`."""

    def __init__(self, files: Sequence[str] = (), *, speed: float) -> None:
        """Raises `Refused` for a file that is no recording."""
        self.recordings = {name: shipped()[name] for name in dict.fromkeys([*FIRST, *shipped()])}
        if files:
            once = len({Path(each).name for each in files}) == len(files)
            self.recordings = {Path(each).name if once else each: Path(each) for each in files}
        heads = {name: _head(path) for name, path in self.recordings.items()}
        self._speed = speed
        self._tools = None if files else _TOOLS
        self.tools = _told(self._tools)
        of_models = f"of {', '.join(models_of(heads.values()))}"
        self.label = f"recordings {', '.join(self.recordings) if files else of_models}"
        self.note = _OF_FILES if files else _OF_OURS
        self.suggestions = [
            *(Suggestion(name, head.title or name, question_of(head) or name) for name, head in heads.items()),
            *([] if files else [POSTCARD]),
        ]
        self._played: WeakKeyDictionary[Chat, Path] = WeakKeyDictionary()

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> chat:
        found = self._find(question, suggestion)
        model = _Recorded(self._speed, found)
        follow_up: Any = "auto" if model.is_postcard else "never"
        answer = chat(
            model,
            [User(question)],
            tools=self._tools,
            follow_up=follow_up,
            parser=ParserOptions(call_deltas=True),
            runner=RunnerOptions(state=self._speed),
            approvals=ApprovalOptions(ask="now"),
        )
        if isinstance(found, Path):
            self._played[answer] = found
        return answer

    def recording_of(self, answer: Chat) -> Path | None:
        return self._played.get(answer)

    def _find(self, question: str, suggestion: str | None) -> Path | Suggestion | None:
        if suggestion is not None:
            asked = [each for each in self.suggestions if each.name == suggestion]
        else:
            asked = [each for each in self.suggestions if _words(each.question) == _words(question)]
        return self.recordings.get(asked[0].name, asked[0]) if asked else None


def _told(tools: ToolRegistry | None) -> list[dict[str, str]]:
    """Return what the first screen says of tools."""
    asks = {True: " It asks you first."}
    return [
        {"name": each.name, "about": each.description.partition("\n")[0] + asks.get(bool(each.requires_approval), "")}
        for each in tools or ()
    ]


def _head(path: Path) -> Head:
    try:
        if not path.is_file():
            raise RecordingError(f"{path} is no file")
        with open_exchange(path, 1) as recording:
            return recording.head
    except RecordingError as error:
        raise Refused(str(error)) from None


class _Recorded:
    """A model that says what was found for one question."""

    native_tool_calls = None

    def __init__(self, speed: float, found: Path | Suggestion | None) -> None:
        self.name = "recorded"
        self.is_postcard = found == POSTCARD
        self._speed = speed
        self._found = found

    def body(self, ask: Ask) -> dict[str, Any]:
        return {}

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Source]:
        if isinstance(self._found, Path):
            recording = open_exchange(self._found, 1)
            source = Source(ReplayBytes(recording, speed=self._speed), adapter_of(recording))
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
