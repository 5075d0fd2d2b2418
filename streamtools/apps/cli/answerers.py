"""Answers the questions that the user enters in the web page, with recorded answers or with a model."""

from __future__ import annotations

import secrets
from argparse import Namespace
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from streamtools import ApprovalOptions, ParserOptions
from streamtools.apps.cli.demo import TOOLS, model_names, recorded_chat
from streamtools.apps.cli.errors import CommandError
from streamtools.apps.cli.model_options import describe_tools, import_tools, make_client
from streamtools.apps.web import Answerer, PageAnswer, Suggestion, question_of
from streamtools.conversation import HTTPModel, ScriptedModel, chat
from streamtools.errors import RecordingError
from streamtools.history import Message, System, User
from streamtools.recording import ExchangeHead, record, shipped
from streamtools.recording.files import open_exchange
from streamtools.recording.redaction import redact_url

MAX_RECORDINGS = 100
"""The maximum number of recorded answers for the debugger. If there are more, the oldest recording is deleted."""

FIRST = ("tilde-call", "two-tools", "headings", "quoted-markers", "cut-call")
"""The names of the recordings that the page shows first."""

_NOTE_FOR_FILES = "This page plays recorded answers. They ignore earlier messages, and their calls do not run."
_NOTE_FOR_SHIPPED = (
    "No model is connected, so this page plays recorded answers. They ignore earlier messages. Their calls run here, "
    "with these tools:"
)

_UNKNOWN_QUESTION_TEXT = (
    "There is no recorded answer to that. The recorded questions are above the input box. To talk to a model, start "
    "the page with its name and address: `streamtools serve --model NAME --url http://127.0.0.1:8080/v1`"
)


class RecordedAnswers(Answerer):
    """Plays the recordings in `files`, or the recordings of the package.

    Only calls in the recordings of the package are executed. The model's recorded answer to their results then follows,
    ten times as fast. For a question that is not in a recording, the answer says that there is no recorded answer.
    """

    def __init__(self, files: Sequence[str] = (), *, speed: float) -> None:
        """`speed` is 1 for the recorded timing. Raises CommandError for a file that is not a recording."""
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

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> PageAnswer:
        path = self._find(question, suggestion)
        if path is None:
            return PageAnswer(chat(ScriptedModel([_UNKNOWN_QUESTION_TEXT]), [User(question)]))
        return PageAnswer(recorded_chat(path, question, self._tools, self._speed), path)

    def _find(self, question: str, suggestion: str | None) -> Path | None:
        words = question.casefold().split()
        for name, _, recorded in self.suggestions:
            if name == suggestion or (suggestion is None and recorded.casefold().split() == words):
                return self.recordings[name]
        return None


def _read_head(path: Path) -> ExchangeHead:
    try:
        if not path.is_file():
            raise RecordingError(f"{path} is not a file")
        with open_exchange(path, 1) as recording:
            return recording.head
    except RecordingError as error:
        raise CommandError(str(error)) from None


class ModelAnswerer(Answerer):
    """Answers questions with the model of the command line. Records its responses in `directory` for the debugger."""

    def __init__(self, args: Namespace, directory: Path) -> None:
        """Raises CommandError for invalid options."""
        self._args = args
        self._tools = import_tools(args.tools) if args.tools is not None else None
        self._directory = directory
        self._paths: deque[Path] = deque()
        try:
            self._model = make_client(args)
            self._chat([User("Hello")], self._model)._is_unread = False  # it only checks the options
        except (ValueError, ImportError, httpx.InvalidURL) as error:  # wrong URLs, keys or options, or missing packages
            raise CommandError(str(error)) from error
        self.label = f"{args.model} at {redact_url(self._model.url)}"
        self.client_tools = [tool.name for tool in self._tools or () if tool.client]
        self.tools = describe_tools(self._tools)

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> PageAnswer:
        path = self._directory / f"{secrets.token_hex(8)}.jsonl"
        http_client: Any = _RecordingClient(path, self._model.source)  # model clients call only `stream`
        self._paths.append(path)
        if len(self._paths) > MAX_RECORDINGS:
            self._paths.popleft().unlink(missing_ok=True)
        return PageAnswer(self._chat([*history, User(question)], make_client(self._args, http_client)), path)

    def _chat(self, messages: Sequence[Message], model: HTTPModel) -> chat:
        args = self._args
        return chat(
            model,
            [System(args.system), *messages] if args.system else messages,
            tools=self._tools,
            dialects=None if args.dialect is None else (args.dialect,),
            approvals=ApprovalOptions(ask="now"),
            parser=ParserOptions(call_deltas=True),
        )


class _RecordingClient:
    """An HTTP client that adds its requests and responses to one recording."""

    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        self._source = source

    @asynccontextmanager
    async def stream(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        async with httpx.AsyncClient() as client, client.stream(*args, **options) as response:
            with self._path.open("ab") as file:
                yield record(response, file, source=self._source, record_body=True)
