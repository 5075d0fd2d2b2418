"""The command `streamtools serve`. It runs the page of `streamtools.apps.web` with a model or with recorded answers."""

from __future__ import annotations

import secrets
from argparse import Namespace
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlencode
from weakref import WeakKeyDictionary

import httpx

from streamtools import ApprovalOptions, ParserOptions, StreamOptions
from streamtools.apps.cli.errors import ErrorOutput
from streamtools.apps.cli.model_options import CommandModel, describe_tools, import_tools, proxy_for
from streamtools.apps.cli.servers import is_loopback, listen, require_web_extra, run_server, url_host
from streamtools.conversation import Chat, chat
from streamtools.conversation.models.http_model import HTTPModel
from streamtools.history import Message, User
from streamtools.recording import RecordingTransport

if TYPE_CHECKING:  # this import needs starlette, which is optional
    from streamtools.apps.web import Answerer, Suggestion

MAX_RECORDINGS = 100
"""The maximum number of recorded answers for the debugger. If there are more, the oldest recording is deleted."""
MAX_RECORDING_BYTES = 16 * 1024 * 1024
"""The size in bytes from which the recording of an answer gets no further requests."""


def run(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the server until a signal ends the process, and return the exit status."""
    with require_web_extra("the page"):
        from streamtools.apps.cli.recorded_answers import RecordedAnswers
        from streamtools.apps.web import make_app
    with TemporaryDirectory(prefix="streamtools-", ignore_cleanup_errors=True) as directory:
        answerer: Answerer
        if args.model is None:
            answerer = RecordedAnswers(args.files, speed=args.speed)
        else:
            answerer = _ModelAnswerer(args, Path(directory))
        _serve(args, make_app, answerer, output, errors)
    return 0


def _serve(
    args: Namespace, make_app: Callable[..., Any], answerer: Answerer, output: TextIO, errors: ErrorOutput
) -> None:
    with listen(args.host, args.port) as listener:
        port = listener.getsockname()[1]
        hosts = [host.lower() for host in (args.host, *args.allowed_hosts)]
        app = make_app(answerer, cookie=f"streamtools_{port}", hosts=hosts)
        if not is_loopback(listener):
            errors.write(f"everyone who can connect to {url_host(args.host)} can talk to the model and run the tools")
        page = f"debugger?{urlencode({'of': answerer.suggestions[0].name})}" if args.files else ""
        banner = f"{answerer.label}: http://{url_host(args.host)}:{port}/{page} (Ctrl-C ends it)"
        run_server(app, listener, banner, output)


class _ModelAnswerer:
    """Answers questions with the model of the command line. It records responses in `directory` for the debugger."""

    note = ""
    suggestions: Sequence[Suggestion] = ()

    def __init__(self, args: Namespace, directory: Path) -> None:
        tools = import_tools(args.tools) if args.tools is not None else None
        self._model = CommandModel(args, tools)
        self.label = self._model.label
        self.client_tools = [tool.name for tool in tools or () if tool.client]
        self.tools = describe_tools(tools)
        self.parameters = [name for name in ("temperature", "max_tokens") if name not in dict(args.options)]
        self._directory = directory
        self._recordings: WeakKeyDictionary[chat, Path] = WeakKeyDictionary()
        self._paths: deque[Path] = deque()

    def answer(
        self,
        question: str,
        history: Sequence[Message],
        *,
        suggestion: str | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> chat:
        messages = [*self._model.system_messages, *history, User(question)]
        path = self._directory / f"{secrets.token_hex(8)}.jsonl"
        http_client: Any = _RecordingClient(path, self._model.make_client())  # model clients call only `stream`
        model = self._model.make_client(http_client)
        options: StreamOptions = {"approvals": ApprovalOptions(ask="now"), "parser": ParserOptions(call_deltas=True)}
        answer = self._model.chat(messages, model, request=request, **options)
        self._recordings[answer] = path
        self._paths.append(path)
        if len(self._paths) > MAX_RECORDINGS:
            self._paths.popleft().unlink(missing_ok=True)
        return answer

    def recording_of(self, answer: Chat) -> Path | None:
        return self._recordings.get(answer)


class _RecordingClient:
    """An HTTP client that adds its requests and responses to one recording."""

    def __init__(self, path: Path, model: HTTPModel) -> None:
        self._path = path
        self._url, self._source = model.url, model.source

    @asynccontextmanager
    async def stream(self, *args: Any, **options: Any) -> AsyncIterator[httpx.Response]:
        has_room = not self._path.exists() or self._path.stat().st_size < MAX_RECORDING_BYTES
        transport: Any = httpx.AsyncHTTPTransport(proxy=proxy_for(self._url))
        with self._path.open("ab") as file:
            if has_room:
                transport = RecordingTransport(transport, file, source=self._source, record_body=True)
            async with httpx.AsyncClient(transport=transport) as client, client.stream(*args, **options) as response:
                yield response
