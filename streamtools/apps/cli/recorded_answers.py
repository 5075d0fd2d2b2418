"""Answers the questions of the web page without a model. It plays recorded answers of a real model with their timing.

The tools that the recorded answers call are run. A question without a recording gets an explanation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from streamtools import ParserOptions, sources
from streamtools.apps.cli.demo import TOOLS, model_names
from streamtools.apps.cli.errors import CommandError
from streamtools.apps.cli.model_options import describe_tools
from streamtools.apps.web import Suggestion, question_of
from streamtools.conversation import Ask, Chat, chat
from streamtools.errors import RecordingError
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.history import Message, User
from streamtools.recording import ExchangeHead, ReplayBytes, shipped
from streamtools.recording.event_replay import adapter_of
from streamtools.recording.reader import open_exchange
from streamtools.sources import Source

FIRST = ("tilde-call", "two-tools", "headings", "quoted-markers", "cut-call")
"""The names of the recordings that the page shows first."""

_NOTE_FOR_FILES = "Recorded answers are played, each by itself. Their calls are not run."
_NOTE_FOR_SHIPPED = (
    "Without a model, recorded answers are played, each by itself. Their calls are run here, by two small tools. The "
    "weather is invented."
)

_UNKNOWN_QUESTION_TEXT = """There is no recorded answer to that. This page plays **recordings** of a small model, \
because it was started without one. To talk to a model, start the page with its name and address:

```
streamtools serve --model NAME \\
  --url http://127.0.0.1:8080/v1 \\
  --tools MODULE:REGISTRY
```

The recorded questions are above the input box.
"""


class RecordedAnswers:
    """An answerer that plays the recordings in `files`. Without files, it plays the recordings in the package."""

    def __init__(self, files: Sequence[str] = (), *, speed: float) -> None:
        """`speed` is passed to `ReplayBytes`. Raises CommandError for a file that is not a recording."""
        self.recordings = {name: shipped()[name] for name in dict.fromkeys([*FIRST, *shipped()])}
        if files:
            names_are_unique = len({Path(file).name for file in files}) == len(files)
            self.recordings = {Path(file).name if names_are_unique else file: Path(file) for file in files}
        heads = {name: _read_head(path) for name, path in self.recordings.items()}
        self._speed = speed
        self._tools = None if files else TOOLS
        self.tools = describe_tools(self._tools)
        names = self.recordings if files else model_names(heads.values())
        self.label = f"recordings {'' if files else 'of '}{', '.join(names)}"
        self.note = _NOTE_FOR_FILES if files else _NOTE_FOR_SHIPPED
        self.suggestions = [
            Suggestion(name, head.title or name, question_of(head) or name) for name, head in heads.items()
        ]
        self._played: WeakKeyDictionary[Chat, Path] = WeakKeyDictionary()

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> chat:
        found = self._find(question, suggestion)
        answer = chat(
            _RecordedModel(self._speed, found),
            [User(question)],
            tools=self._tools,
            follow_up="never",
            parser=ParserOptions(call_deltas=True),
        )
        if found is not None:
            self._played[answer] = found
        return answer

    def recording_of(self, answer: Chat) -> Path | None:
        return self._played.get(answer)

    def _find(self, question: str, suggestion: str | None) -> Path | None:
        if suggestion is not None:
            found = [item for item in self.suggestions if item.name == suggestion]
        else:
            found = [item for item in self.suggestions if _words(item.question) == _words(question)]
        return self.recordings[found[0].name] if found else None


def _read_head(path: Path) -> ExchangeHead:
    try:
        if not path.is_file():
            raise RecordingError(f"{path} is not a file")
        with open_exchange(path, 1) as recording:
            return recording.head
    except RecordingError as error:
        raise CommandError(str(error)) from None


class _RecordedModel:
    """A model client that plays the recording `found`. For None, it answers with an explanation."""

    native_tool_calls = None
    name = "recorded"

    def __init__(self, speed: float, found: Path | None) -> None:
        self._speed = speed
        self._found = found

    def body(self, ask: Ask) -> dict[str, Any]:
        return {}

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Source]:
        if self._found is not None:
            recording = open_exchange(self._found, 1)
            source = Source(ReplayBytes(recording, speed=self._speed), adapter_of(recording))
        else:
            source = sources.events(self._explain())
        try:
            yield source
        finally:
            await source.aclose()

    async def _explain(self) -> AsyncIterator[SourceEvent]:
        yield TextDelta(_UNKNOWN_QUESTION_TEXT)
        yield ProviderCompleted(finish_reason="stop")


def _words(text: str) -> list[str]:
    return text.casefold().split()
