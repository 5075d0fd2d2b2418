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
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO

import anyio
import httpx

from streamtools import RunnerOptions
from streamtools.apps.cli import arguments
from streamtools.apps.cli.complaints import Complaints, Refused, one_line, reason_of
from streamtools.apps.cli.named_model import NamedModel, import_tools, proxy_for, refusals
from streamtools.apps.cli.prompting import Prompt, decide, no_echo
from streamtools.apps.cli.recordings import JsonLines, View, open_output, open_transcript
from streamtools.conversation import Assistant, Message, System, User
from streamtools.errors import Code
from streamtools.history import read_messages
from streamtools.recording.transports import RecordingTransport
from streamtools.stream.result import TurnResult
from streamtools.tools import MemoryLedger, Suspension, ToolRegistry
from streamtools.tools.decisions import Decision

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
_COMMANDS = {
    "/help": "this",
    "/model": "NAME: which model answers, or another one from now on",
    "/tools": "the tools, and which of them ask first",
    "/retry": "ask the last question again",
    "/raw": "show calls and Markdown as the model wrote them, or no longer",
    "/save": "FILE: write the conversation into a new file, as OpenAI's messages",
    "/load": "FILE: go on with a conversation that was saved, or with messages of any provider",
    _QUIT: "end the chat",
}
_FILES = ("/save", "/load")
_KEYS = "Alt-Enter, or \\ at the end of a line, begins another line; ↑ finds earlier questions; Tab completes commands."

_FRAME = 1 / 20
"""Seconds between two drawings of what changes in place."""


def run_chat(asked: arguments.Chat, output: TextIO, complaints: Complaints) -> int:
    """Hold the chat that was asked for, and return the exit status."""
    for option, given, what in (("--once", asked.once, "question"), ("--continue", asked.kept, "file")):
        if given is not None and not given.strip():
            raise Refused(f"{option} takes a {what}, and {given!r} is none")
    tools = import_tools(asked.tools) if asked.tools is not None else None
    screen = None if asked.json else open_transcript(output, complaints, raw=asked.raw, markdown=True, pause=_FRAME)
    view: View = screen or JsonLines(output)
    recording = contextlib.nullcontext() if asked.record is None else open_output(asked.record, "--record")
    with recording as file:
        conversation = _Conversation(asked, tools, view, screen, file, complaints)
        if asked.once is not None:
            view.question(asked.once)
            status = conversation.answer(asked.once)
            if conversation.stopped:
                raise KeyboardInterrupt
            return status
        questions = _questions(conversation, screen, output)
        return max(map(conversation.answer, questions), default=0)


@dataclass(eq=False)
class _Conversation:
    """The messages so far, and the model that answers."""

    _asked: arguments.Chat
    _tools: ToolRegistry | None
    _view: View
    _screen: Transcript | None
    _recording: BinaryIO | None
    _complaints: Complaints

    def __post_init__(self) -> None:
        asked = self._asked
        self._ledger = MemoryLedger()
        self._named = NamedModel(asked, self._tools)
        self._history: list[Message] = self._named.beginning
        self._fault: OSError | None = None  # why the recording breaks off
        self.greeting = f"{self._named.label}. Ctrl-C stops an answer; {_QUIT} ends the chat, /help tells more."
        """The line at the start: which model answers, and how to leave."""
        self.decide: Callable[[Suspension], dict[str, Decision]] | None = None
        """Is asked about calls that wait; where nobody can be asked, they stay pending."""
        self.quietly: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        """What is around each answer."""
        self._waiting: Suspension | None = None
        self._last: tuple[str, list[Message], list[str]] | None = None  # a question, what was before it, and what ran
        self._messages: list[Any] = []
        self.stopped = False
        """Whether the last answer was stopped."""
        if asked.kept is not None:
            if not Path(asked.kept).absolute().parent.is_dir():
                raise Refused(f"--continue: there is no folder for {asked.kept}")
            try:
                self._go_on(asked.kept)
            except FileNotFoundError:
                pass  # it is made with the first answer
            except Refused as refusal:
                raise Refused(f"--continue: {refusal}") from None
            self.greeting += f" The conversation is kept in {asked.kept}."

    @property
    def questions(self) -> list[str]:
        return [each.content for each in self._history if isinstance(each, User) and isinstance(each.content, str)]

    def answer(self, question: str) -> int:
        """Show the answer to a question, and return its exit status."""
        before = self._history
        result = self._run([*before, User(question)], {})
        ran = _ran(result)
        while self.decide is not None and (waiting := self._waiting) is not None:
            try:
                resumed = {"resume": waiting, "approvals": self.decide(waiting)}
            except KeyboardInterrupt:  # stops the answer, and not the chat
                break
            result = self._run(self._history, resumed)
            ran += _ran(result)
        self._last = question, before, ran
        status = self._complaints.status_of(self._named.label, result)
        if (fault := self._fault) is not None:
            raise Refused(f"the recording cannot be written: {reason_of(fault)}", status=1)
        if (path := self._asked.kept) is not None and self._messages:
            try:
                write_talk(path, self._messages, anew=False)
            except OSError as error:
                raise Refused(f"--continue: {path} cannot be written: {reason_of(error)}", status=1) from None
        return status

    def command(self, line: str, screen: Transcript, prompt: Prompt) -> str | None:
        """Do what a command says; return a question that is to be asked now, if it is one."""
        name, _, rest = line.partition(" ")
        rest = rest.strip()
        match name:
            case "/help":
                width = max(map(len, _COMMANDS)) + 2
                screen.write("\n".join(f"{name:{width}}{what}" for name, what in _COMMANDS.items()))
                if prompt.rich:
                    screen.remark(_KEYS)
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
                what = "Calls and Markdown are shown as the model "
                screen.remark(what + ("writes them." if screen.shows_raw else "means them."))
            case "/save" if rest:
                screen.remark(self._save(rest))
            case "/load" if rest:
                screen.remark(self._load(rest))
            case "/retry" if self._last is not None:
                question, before, ran = self._last
                if ran and not prompt.confirms(f"{one_line(', '.join(ran))} may run again. Ask again?"):
                    return None
                self._history = before
                return question
            case _:
                screen.remark("That is no command that can be followed here; /help tells which there are.")
        return None

    def _save(self, path: str) -> str:
        if not self._messages:
            return "Nothing has been answered yet, so there is nothing to save."
        try:
            write_talk(path, self._messages, anew=True)
        except (OSError, ValueError) as error:  # ValueError: a null character
            return f"It cannot be saved: {reason_of(error)}."
        return f"Saved in {path}."

    def _load(self, path: str) -> str:
        try:
            self._go_on(path)
        except FileNotFoundError:
            return f"There is no file {path}."
        except Refused as refusal:
            return f"{refusal}."
        return f"Going on behind what is in {path}."

    def _go_on(self, path: str) -> None:
        """Go on behind the conversation in a file. Raises FileNotFoundError, and `Refused`."""
        messages, read = read_talk(path)
        instructed = any(isinstance(message, System) for message in read)
        self._history = read if instructed else [*self._named.beginning, *read]
        self._messages, self._last = messages, None

    def _run(self, before: list[Message], resumed: dict[str, Any]) -> TurnResult:
        with self.quietly():
            return anyio.run(self._ask, before, resumed)

    async def _ask(self, before: list[Message], resumed: dict[str, Any]) -> TurnResult:
        """Show the answer, and return what it came to. A question without an answer is forgotten."""
        start = time.perf_counter()
        with refusals():
            async with self._client() as client:
                events = self._named.chat(
                    before, self._named.model(client), runner=RunnerOptions(ledger=self._ledger), **resumed
                )
                with anyio.CancelScope() as scope, stopped_by_interrupt(scope):
                    async with events, self._kept_up_to_date():
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
    async def _kept_up_to_date(self) -> AsyncIterator[None]:
        """Draw what changes in place between two events, too: how long a tool has been at work, text that waited."""

        async def draw(screen: Transcript) -> None:
            while True:
                await asyncio.sleep(_FRAME)
                screen.tick()

        task = None if self._screen is None else asyncio.ensure_future(draw(self._screen))
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])  # an output that is closed has told so to the events, too

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
    prompt = None
    if terminal is not None:
        prompt = Prompt(output, tuple(_COMMANDS), _FILES)
        prompt.remember(conversation.questions)
        terminal.remark(conversation.greeting)
        conversation.decide = partial(decide, screen=terminal, prompt=prompt)
        if prompt.rich:
            conversation.quietly = no_echo
    while True:
        if terminal is not None:
            terminal.prompt()
        line = prompt.question() if prompt is not None else sys.stdin.readline() or None
        if line is None or line.strip() == _QUIT:
            return
        question: str | None = line.strip()
        if question and terminal is not None and prompt is not None and question.startswith("/"):
            question = conversation.command(question, terminal, prompt)
        if question:
            if screen is not None and terminal is None:
                screen.question(question)
            yield question


# A conversation in a file: as OpenAI's messages, which `/save` and `--continue` write, or as any provider's.

_TEXT: Final[dict[str, Any]] = {"encoding": "utf-8", "errors": "surrogatepass"}
"""A model's half of a surrogate pair is kept as it is."""


def read_talk(path: str) -> tuple[list[Any], list[Message]]:
    """Return what stands in the file, and the messages that it means. Raises `Refused`, and FileNotFoundError."""
    try:
        written = json.loads(Path(path).read_text(**_TEXT))
        if not isinstance(written, list):
            raise ValueError("a list of messages was expected")
        return written, read_messages(written, system=True)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise Refused(f"{path}: it cannot be read: {reason_of(error)}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, no messages
        raise Refused(f"{path}: it is no conversation: {one_line(str(error))}") from None


def write_talk(path: str, messages: list[Any], *, anew: bool) -> None:
    """Write the messages, for their owner alone: into a new file, or over what is there, whole or not at all.

    Raises OSError.
    """
    if anew:
        with open(path, "x", opener=partial(os.open, mode=0o600), **_TEXT) as file:
            json.dump(messages, file, ensure_ascii=False, indent=2)
        return
    where = Path(os.path.realpath(path))  # a symbolic link stays one
    with tempfile.NamedTemporaryFile("w", dir=where.parent, prefix=f".{where.name}.", delete=False, **_TEXT) as file:
        try:
            json.dump(messages, file, ensure_ascii=False, indent=2)
            file.flush()
            Path(file.name).replace(where)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(file.name).unlink()
            raise
