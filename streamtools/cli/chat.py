"""`streamtools chat`: questions from standard input, a model that answers, and tools that it calls.

Each answer has an event loop of its own, and between answers there is none: so a question is read as any program reads
a line, with the terminal's editing, and Ctrl-C there ends the chat as it ends any program.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, BinaryIO, TextIO

import anyio
import httpx

from streamtools.cli import arguments
from streamtools.cli.complaints import Complaints, Refused
from streamtools.cli.interrupts import stopped_by_interrupt
from streamtools.cli.named_model import NamedModel, refusals
from streamtools.cli.output_file import open_output
from streamtools.cli.proxies import proxy_for
from streamtools.cli.toolbox import import_tools
from streamtools.cli.view import JsonLines, View, open_transcript
from streamtools.conversation import Assistant, Message, User
from streamtools.recording.transport import RecordingTransport
from streamtools.result import TurnResult
from streamtools.tools import ToolRegistry

if TYPE_CHECKING:
    from streamtools.cli.transcript import Transcript

_PROMPT = "❯ "
_QUIT = "/quit"


def run_chat(asked: arguments.Chat, output: TextIO, complaints: Complaints) -> int:
    """Hold the chat that was asked for, and return the exit status."""
    tools = import_tools(asked.tools) if asked.tools is not None else None
    view: View
    if asked.json:
        view, screen = JsonLines(output), None
    else:
        view = screen = open_transcript(output, complaints, raw=asked.raw)
    recording = contextlib.nullcontext() if asked.record is None else open_output(asked.record, "--record")
    with recording as file:
        conversation = _Conversation(asked, tools, view, file)
        if asked.once is not None:
            view.question(asked.once)
            status = _answer(conversation, asked.once, complaints)
            if conversation.stopped:
                raise KeyboardInterrupt
            return status
        status = 0
        for question in _questions(conversation, screen, output):
            status = max(status, _answer(conversation, question, complaints))
        return status


class _Conversation:
    """What has been said, and who answers."""

    def __init__(
        self, asked: arguments.Chat, tools: ToolRegistry | None, view: View, recording: BinaryIO | None
    ) -> None:
        self._named = NamedModel(asked, tools)
        self._view = view
        self._recording = recording
        self._history: list[Message] = self._named.beginning
        self.fault: OSError | None = None
        """Why the recording breaks off."""
        self.stopped = False
        """Whether somebody has stopped the last answer."""

    @property
    def name(self) -> str:
        """Who answers."""
        return self._named.model().name

    @property
    def told(self) -> str:
        """Who answers, and how one gets away again."""
        return f"{self._named.told}. Ctrl-C stops an answer; {_QUIT} ends the chat."

    async def ask(self, question: str) -> TurnResult:
        """Show the answer, and return what it came to. A question without an answer is forgotten."""
        start = time.perf_counter()
        with refusals():
            async with self._client() as client:
                before = [*self._history, User(question)]
                events = self._named.chat(before, self._named.model(client))
                with anyio.CancelScope() as scope, stopped_by_interrupt(scope):
                    async with events:
                        async for event in events:
                            self._view.show(event)
                async for event in events:  # that it was stopped
                    self._view.show(event)
        self.stopped = scope.cancelled_caught
        history = events.history
        if any(isinstance(message, Assistant) for message in history[len(before) :]):
            self._history = history
        self._view.summarise(events.result, time.perf_counter() - start)
        return events.result

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient | None]:
        """Give a client that records; None where nothing is to be recorded, and the model has one of its own."""
        if self._recording is None:
            yield None
            return
        model = self._named.model()
        inner = httpx.AsyncHTTPTransport(proxy=proxy_for(model.url))
        transport = RecordingTransport(inner, self._recording, source=model.format)
        async with httpx.AsyncClient(transport=transport) as client:
            yield client
        self.fault = self.fault or transport.fault


def _answer(conversation: _Conversation, question: str, complaints: Complaints) -> int:
    """Show the answer to a question, and return the exit status that it deserves."""
    result = anyio.run(conversation.ask, question)
    status = 0
    if result.reason == "failed":
        complaints.write_failure(conversation.name, result)
        status = 1
    if conversation.fault is not None:
        fault = conversation.fault
        raise Refused(f"the recording cannot be written: {fault.strerror or fault}", status=1)
    return status


def _questions(conversation: _Conversation, screen: Transcript | None, output: TextIO) -> Iterator[str]:
    """Yield what is asked, line by line, until somebody quits. Only on a terminal somebody is asked for it."""
    if sys.stdin is None:
        return
    asks = screen is not None and sys.stdin.isatty() and output.isatty()
    if asks:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - `input` uses it: lines can be edited, and earlier ones found
        assert screen is not None
        screen.remark(conversation.told)
    while True:
        if asks:
            assert screen is not None
            screen.prompt()
        line = _read_at_prompt(output) if asks else _read_line()
        if line is None or line.strip() == _QUIT:
            return
        if question := line.strip():
            if screen is not None and not asks:
                screen.question(question)
            yield question


def _read_at_prompt(output: TextIO) -> str | None:
    try:
        with contextlib.redirect_stdout(output):  # which `input` looks for a terminal in
            return input(_PROMPT)
    except (EOFError, KeyboardInterrupt) as end:
        output.write("\n")
        output.flush()
        if isinstance(end, KeyboardInterrupt):
            raise
        return None


def _read_line() -> str | None:
    return sys.stdin.readline() or None
