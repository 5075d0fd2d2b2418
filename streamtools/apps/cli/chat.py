"""`streamtools chat`: questions from standard input, a model that answers, and tools that it calls.

Each answer has an event loop of its own, and between answers there is none: so a question is read as any program reads
a line, with the terminal's editing, and Ctrl-C there ends the chat as it ends any program.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO, TextIO

import anyio
import httpx

from streamtools.apps.cli import arguments
from streamtools.apps.cli.complaints import Complaints, Refused
from streamtools.apps.cli.model_arguments import NamedModel, import_tools, proxy_for, refusals
from streamtools.apps.cli.recordings import JsonLines, View, open_output, open_transcript
from streamtools.conversation import Assistant, Message, User
from streamtools.recording.transports import RecordingTransport
from streamtools.stream.result import TurnResult
from streamtools.tools import ToolRegistry

if TYPE_CHECKING:
    from streamtools.apps.cli.transcript import Transcript


@contextlib.contextmanager
def stopped_by_interrupt(scope: anyio.CancelScope) -> Iterator[None]:
    """While the block lasts, the first Ctrl-C cancels `scope`, and a second one raises KeyboardInterrupt.

    It is the handler of asyncio's loop that is replaced: there the first one would end the loop. Where interrupts are
    ignored, as in the background of a shell, they stay ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    loop = asyncio.get_running_loop()

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.call_soon_threadsafe(scope.cancel)  # which also wakes the loop

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_PROMPT = "❯ "
_QUIT = "/quit"


def run_chat(asked: arguments.Chat, output: TextIO, complaints: Complaints) -> int:
    """Hold the chat that was asked for, and return the exit status."""
    tools = import_tools(asked.tools) if asked.tools is not None else None
    screen = None if asked.json else open_transcript(output, complaints, raw=asked.raw)
    view: View = screen or JsonLines(output)
    recording = contextlib.nullcontext() if asked.record is None else open_output(asked.record, "--record")
    with recording as file:
        conversation = _Conversation(asked, tools, view, file, complaints)
        if asked.once is not None:
            view.question(asked.once)
            status = conversation.answer(asked.once)
            if conversation.stopped:
                raise KeyboardInterrupt
            return status
        return max(map(conversation.answer, _questions(conversation.greeting, screen, output)), default=0)


class _Conversation:
    """The messages so far, and the model that answers."""

    def __init__(
        self,
        asked: arguments.Chat,
        tools: ToolRegistry | None,
        view: View,
        recording: BinaryIO | None,
        complaints: Complaints,
    ) -> None:
        self._named = NamedModel(asked, tools)
        self._view = view
        self._recording = recording
        self._complaints = complaints
        self._history: list[Message] = self._named.beginning
        self._fault: OSError | None = None  # why the recording breaks off
        self.greeting = f"{self._named.label}. Ctrl-C stops an answer; {_QUIT} ends the chat."
        """The line at the start: which model answers, and how to leave."""
        self.stopped = False
        """Whether the last answer was stopped."""

    def answer(self, question: str) -> int:
        """Show the answer to a question, and return its exit status."""
        status = self._complaints.status_of(self._named.model().name, anyio.run(self._ask, question))
        if (fault := self._fault) is not None:
            raise Refused(f"the recording cannot be written: {fault.strerror or fault}", status=1)
        return status

    async def _ask(self, question: str) -> TurnResult:
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
        transport = RecordingTransport(inner, self._recording, source=model.source)
        async with httpx.AsyncClient(transport=transport) as client:
            yield client
        self._fault = self._fault or transport.fault


def _questions(greeting: str, screen: Transcript | None, output: TextIO) -> Iterator[str]:
    """Yield questions, line by line, until the user quits. There is a prompt only on a terminal."""
    if sys.stdin is None:
        return
    terminal = screen if sys.stdin.isatty() and output.isatty() else None
    if terminal is not None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - `input` uses it: lines can be edited, and earlier ones found
        terminal.remark(greeting)
    while True:
        if terminal is not None:
            terminal.prompt()
        line = _read_at_prompt(output) if terminal is not None else sys.stdin.readline() or None
        if line is None or line.strip() == _QUIT:
            return
        if question := line.strip():
            if screen is not None and terminal is None:
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
