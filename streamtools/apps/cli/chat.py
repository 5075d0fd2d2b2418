"""`streamtools chat`: questions from standard input, a model that answers, and tools that it calls.

Each answer has an event loop of its own, and between answers there is none: so a question is read as any program reads
a line, with the terminal's editing, and Ctrl-C there ends the chat as it ends any program.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import anyio
import httpx

from streamtools.apps.cli import arguments
from streamtools.apps.cli.complaints import Complaints, Refused, one_line
from streamtools.apps.cli.model_arguments import NamedModel, import_tools, proxy_for, refusals
from streamtools.apps.cli.prompting import confirms, decide, read_at_prompt
from streamtools.apps.cli.recordings import JsonLines, View, open_output, open_transcript
from streamtools.conversation import Assistant, Message, System, User
from streamtools.errors import Code
from streamtools.history import read_messages
from streamtools.recording.transports import RecordingTransport
from streamtools.stream.result import TurnResult
from streamtools.tools import MemoryLedger, Suspension, ToolRegistry
from streamtools.tools.approval import Decision

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


_QUIT = "/quit"
_HELP = """\
/help        this
/model NAME  which model answers, or another one from now on
/tools       the tools, and which of them ask first
/retry       ask the last question again
/raw         show calls as the model wrote them, or no longer
/save FILE   write the conversation into a file, as OpenAI's messages
/load FILE   go on with a conversation that was saved, or with messages of any provider
/quit        end the chat"""


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
        questions = _questions(conversation, screen, output)
        return max(map(conversation.answer, questions), default=0)


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
        self._asked = asked
        self._tools = tools
        self._ledger = MemoryLedger()
        self._named = NamedModel(asked, tools)
        self._view = view
        self._recording = recording
        self._complaints = complaints
        self._history: list[Message] = self._named.beginning
        self._fault: OSError | None = None  # why the recording breaks off
        self.greeting = f"{self._named.label}. Ctrl-C stops an answer; {_QUIT} ends the chat, /help tells more."
        """The line at the start: which model answers, and how to leave."""
        self.decide: Callable[[Suspension], dict[str, Decision]] | None = None
        """Is asked about calls that wait; where nobody can be asked, they stay pending."""
        self._waiting: Suspension | None = None
        self._last: tuple[str, list[Message], list[str]] | None = None  # a question, what was before it, and what ran
        self._messages: list[Any] = []
        self.stopped = False
        """Whether the last answer was stopped."""

    def answer(self, question: str) -> int:
        """Show the answer to a question, and return its exit status."""
        before = self._history
        result = anyio.run(self._ask, [*before, User(question)], {})
        ran = _ran(result)
        while self.decide is not None and (waiting := self._waiting) is not None:
            resumed = {"resume": waiting, "decisions": self.decide(waiting)}
            result = anyio.run(self._ask, self._history, resumed)
            ran += _ran(result)
        self._last = question, before, ran
        status = self._complaints.status_of(self._named.model().name, result)
        if (fault := self._fault) is not None:
            raise Refused(f"the recording cannot be written: {fault.strerror or fault}", status=1)
        return status

    def command(self, line: str, screen: Transcript, output: TextIO) -> str | None:
        """Do what a command says; return a question that is to be asked now, if it is one."""
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        match name:
            case "/help":
                screen.write(_HELP)
            case "/model":
                if rest:
                    asked = replace(self._asked, model=rest)
                    self._named, self._asked = NamedModel(asked, self._tools), asked
                screen.remark(self._named.label)
            case "/tools":
                for tool in self._tools or ():
                    asks = " (asks first)" if tool.requires_approval else " (yours)" if tool.client else ""
                    screen.remark(f"{tool.name}{asks}: {tool.description}")
                if not self._tools:
                    screen.remark("There are none; --tools names some.")
            case "/raw":
                screen.shows_raw = not screen.shows_raw
                screen.remark("Calls are shown as the model " + ("writes them." if screen.shows_raw else "means them."))
            case "/save" if rest:
                self._save(rest, screen)
            case "/load" if rest:
                self._load(rest, screen)
            case "/retry" if self._last is not None:
                question, before, ran = self._last
                if ran and not confirms(output, f"{one_line(', '.join(ran))} may run again. Ask again?"):
                    return None
                self._history = before
                return question
            case _:
                screen.remark("That is no command that can be followed here; /help tells which there are.")
        return None

    def _save(self, path: str, screen: Transcript) -> None:
        try:
            with open(path, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as file:
                json.dump(self._messages, file, ensure_ascii=False, indent=2)
        except OSError as error:
            screen.remark(f"It cannot be saved: {error.strerror or error}.")
        else:
            screen.remark(f"Saved in {path}.")

    def _load(self, path: str, screen: Transcript) -> None:
        try:
            messages = json.loads(Path(path).read_text(encoding="utf-8"))
            if not isinstance(messages, list):
                raise ValueError("a list of messages was expected")
            read = read_messages(messages, system=True)
        except OSError as error:
            screen.remark(f"It cannot be read: {error.strerror or error}.")
        except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, no messages
            screen.remark(f"That is no conversation: {one_line(str(error))}.")
        else:
            instructed = any(isinstance(message, System) for message in read)
            self._history = read if instructed else [*self._named.beginning, *read]
            self._messages, self._last = messages, None
            screen.remark(f"Going on behind what is in {path}.")

    async def _ask(self, before: list[Message], resumed: dict[str, Any]) -> TurnResult:
        """Show the answer, and return what it came to. A question without an answer is forgotten."""
        start = time.perf_counter()
        with refusals():
            async with self._client() as client:
                events = self._named.chat(before, self._named.model(client), ledger=self._ledger, **resumed)
                with anyio.CancelScope() as scope, stopped_by_interrupt(scope):
                    async with events:
                        async for event in events:
                            self._view.show(event)
                async for event in events:  # that it was stopped
                    self._view.show(event)
        self.stopped = scope.cancelled_caught
        history = events.history
        self._waiting = events.suspension
        if resumed or any(isinstance(message, Assistant) for message in history[len(before) :]):
            self._history = history
            self._messages = events.messages()
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


def _ran(result: TurnResult) -> list[str]:
    """Return the tools that a run has begun."""
    return [each.call.name for each in result.outcomes if each.error is not Code.TOOL_DENIED]


def _questions(conversation: _Conversation, screen: Transcript | None, output: TextIO) -> Iterator[str]:
    """Yield questions, line by line, until the user quits. There is a prompt only on a terminal."""
    if sys.stdin is None:
        return
    terminal = screen if sys.stdin.isatty() and output.isatty() else None
    if terminal is not None:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - `input` uses it: lines can be edited, and earlier ones found
        terminal.remark(conversation.greeting)
        conversation.decide = partial(decide, screen=terminal, output=output)
    while True:
        if terminal is not None:
            terminal.prompt()
        line = read_at_prompt(output) if terminal is not None else sys.stdin.readline() or None
        if line is None or line.strip() == _QUIT:
            return
        question: str | None = line.strip()
        if question and terminal is not None and question.startswith("/"):
            question = conversation.command(question, terminal, output)
        if question:
            if screen is not None and terminal is None:
                screen.question(question)
            yield question
