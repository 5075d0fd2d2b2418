"""The command `streamtools chat`. It reads questions from standard input, and shows the answers of a model.

Each answer runs in a new event loop. No event loop runs while a question is read. So the prompt can use the line
editing of the terminal, and Ctrl-C at the prompt ends the chat.
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
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO

import anyio
import httpx

from streamtools import RunnerOptions
from streamtools.apps.cli.errors import CommandError, ErrorOutput, reason_of
from streamtools.apps.cli.model_options import CommandModel, command_errors, import_tools, proxy_for
from streamtools.apps.cli.printable import one_line
from streamtools.apps.cli.prompt import Prompt, decide, no_echo
from streamtools.apps.cli.views import JsonLines, View, open_recording_file, open_transcript
from streamtools.conversation import Assistant, Message, System, User
from streamtools.history import read_messages
from streamtools.recording import RecordingTransport
from streamtools.stream.result import TurnResult
from streamtools.tools import MemoryLedger, Suspension, ToolRegistry
from streamtools.tools.approvals import Decision

if TYPE_CHECKING:  # this import needs rich, which is optional
    from streamtools.apps.cli.transcript import Transcript

_QUIT = "/quit"
_COMMANDS = {
    "/help": "list the commands",
    "/model": "NAME: show the model, or switch to another one",
    "/tools": "list the tools, and which of them ask first",
    "/raw": "switch between rendered and raw calls and Markdown",
    _QUIT: "end the chat",
}
_KEYS_HELP = "Alt-Enter, or \\ at the line end, begins a new line. ↑ finds earlier questions. Tab completes commands."

_FRAME_S = 1 / 20
"""The time in seconds between two updates of the lines that change in place."""


def run(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the command, and return its exit status."""
    for option, value in (("--once", args.once), ("--continue", args.conversation_file)):
        if value is not None and not value.strip():
            raise CommandError(f"{option} must not be empty")
    tools = import_tools(args.tools) if args.tools is not None else None
    screen = None
    if not args.json:
        screen = open_transcript(output, errors, raw=args.raw, markdown=True, min_interval=_FRAME_S)
    recording = contextlib.nullcontext() if args.record is None else open_recording_file(args.record, "--record")
    with recording as file:
        session = _ChatSession(args, tools, screen or JsonLines(output), screen, file, errors)
        if args.once is not None:
            session.view.question(args.once)
            status = session.answer(args.once)
            if session.was_stopped:
                raise KeyboardInterrupt
            return status
        return max(map(session.answer, _questions(session, output)), default=0)


class _ChatSession:
    """A conversation with a model. `view` shows the answers. `screen` is the transcript, or None with `--json`."""

    def __init__(
        self,
        args: Namespace,
        tools: ToolRegistry | None,
        view: View,
        screen: Transcript | None,
        recording: BinaryIO | None,
        errors: ErrorOutput,
    ) -> None:
        self._args = args
        self._tools = tools
        self.view = view
        self.screen = screen
        self._recording = recording
        self._recording_fault: OSError | None = None
        self._errors = errors
        self._ledger = MemoryLedger()
        self._model = CommandModel(args, tools)
        self._history: list[Message] = self._model.system_messages
        self._saved_messages: list[Any] = []  # the conversation in the message format of OpenAI
        self._suspension: Suspension | None = None
        self.greeting = f"{self._model.label}. Ctrl-C stops an answer, {_QUIT} ends the chat, /help lists commands."
        self.decide: Callable[[Suspension], dict[str, Decision]] | None = None
        """A function that asks the user for decisions about pending calls. With None, the calls stay pending."""
        self.while_answering: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
        self.was_stopped = False
        """True if Ctrl-C stopped the last answer."""
        if args.conversation_file is not None:
            self._open_conversation_file(args.conversation_file)

    def _open_conversation_file(self, path: str) -> None:
        if not Path(path).absolute().parent.is_dir():
            raise CommandError(f"--continue: the folder of {path} does not exist")
        with contextlib.suppress(FileNotFoundError):  # the file is created after the first answer
            self._saved_messages, messages = read_conversation(path)
            has_system = any(isinstance(message, System) for message in messages)
            self._history = messages if has_system else [*self._history, *messages]
        self.greeting += f" The conversation is saved in {path}."

    @property
    def questions(self) -> list[str]:
        return [
            message.content
            for message in self._history
            if isinstance(message, User) and isinstance(message.content, str)
        ]

    def answer(self, question: str) -> int:
        """Show the answer to a question, and return the exit status."""
        result = self._run_turn([*self._history, User(question)], {})
        while self.decide is not None and (suspension := self._suspension) is not None:
            try:
                decisions = self.decide(suspension)
            except KeyboardInterrupt:  # ends only the answer; the chat continues
                break
            result = self._run_turn(self._history, {"resume": suspension, "approvals": decisions})
        status = self._errors.report_result(self._model.label, result)
        if (fault := self._recording_fault) is not None:
            raise CommandError(f"the recording cannot be written: {reason_of(fault)}", status=1)
        if (path := self._args.conversation_file) is not None and self._saved_messages:
            try:
                replace_conversation(path, self._saved_messages)
            except OSError as error:
                raise CommandError(f"--continue: {path} cannot be written: {reason_of(error)}", status=1) from None
        return status

    def run_command(self, line: str, screen: Transcript, prompt: Prompt) -> None:
        """Run a command that starts with a slash."""
        name, _, argument = line.partition(" ")
        argument = argument.strip()
        match name:
            case "/help":
                width = max(map(len, _COMMANDS)) + 2
                screen.write("\n".join(f"{name:{width}}{text}" for name, text in _COMMANDS.items()))
                if prompt.can_edit:
                    screen.remark(_KEYS_HELP)
            case "/model":
                if argument:
                    args = Namespace(**{**vars(self._args), "model": argument})
                    self._model, self._args = CommandModel(args, self._tools), args
                screen.remark(self._model.label)
            case "/tools":
                for tool in self._tools or ():
                    note = " (asks first)" if tool.requires_approval else " (yours)" if tool.client else ""
                    screen.remark(f"{tool.name}{note}: {tool.description}")
                if not self._tools:
                    screen.remark("There are no tools. Start the chat with --tools to use some.")
            case "/raw":
                screen.raw = not screen.raw
                screen.remark(f"Calls and Markdown are {'raw' if screen.raw else 'rendered'}.")
            case _:
                screen.remark("Unknown command. /help lists the commands.")

    def _run_turn(self, history: list[Message], resume_options: dict[str, Any]) -> TurnResult:
        with self.while_answering():
            return anyio.run(self._show_turn, history, resume_options)

    async def _show_turn(self, history: list[Message], resume_options: dict[str, Any]) -> TurnResult:
        """Request an answer and show it. A question without an answer is not added to the history."""
        start = time.perf_counter()
        with command_errors():
            async with self._http_client() as http_client:
                model = self._model.make_client(http_client)
                runner = RunnerOptions(ledger=self._ledger)
                events = self._model.chat(history, model, runner=runner, **resume_options)
                with anyio.CancelScope() as scope, _cancelled_by_ctrl_c(scope):
                    async with events, self._live_updates():
                        async for event in events:
                            self.view.show(event)
                async for event in events:  # the remaining events, if Ctrl-C cancelled the run
                    self.view.show(event)
        self.was_stopped = scope.cancelled_caught
        self._suspension = events.suspension
        if resume_options or any(isinstance(message, Assistant) for message in events.history[len(history) :]):
            self._history = events.history
            self._saved_messages = events.messages()
        self.view.summarize(events.result, time.perf_counter() - start)
        return events.result

    @contextlib.asynccontextmanager
    async def _live_updates(self) -> AsyncIterator[None]:
        """Also update the screen between events: the seconds of running tools, and text that was not drawn yet."""

        async def update(screen: Transcript) -> None:
            while True:
                await asyncio.sleep(_FRAME_S)
                screen.update()

        task = None if self.screen is None else asyncio.ensure_future(update(self.screen))
        try:
            yield
        finally:
            if task is not None:
                task.cancel()
                await asyncio.wait([task])  # raises no error of the task; writing the next event raises it again

    @contextlib.asynccontextmanager
    async def _http_client(self) -> AsyncIterator[httpx.AsyncClient | None]:
        """Yield an HTTP client that records. Without `--record`, yield None, so that the model creates its client."""
        if self._recording is None:
            yield None
            return
        model = self._model.make_client()
        transport = RecordingTransport(
            httpx.AsyncHTTPTransport(proxy=proxy_for(model.url)),
            self._recording,
            source=model.source,
            record_body=self._args.record_body,
        )
        async with httpx.AsyncClient(transport=transport) as client:
            yield client
        self._recording_fault = self._recording_fault or transport.fault


@contextlib.contextmanager
def _cancelled_by_ctrl_c(scope: anyio.CancelScope) -> Iterator[None]:
    """Cancel `scope` on the first Ctrl-C in the `with` block. A second Ctrl-C raises KeyboardInterrupt.

    This replaces the signal handler of asyncio, which would end the event loop. If the process ignores SIGINT, as in a
    background job of a shell, this changes nothing.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    loop = asyncio.get_running_loop()

    def cancel(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.call_soon_threadsafe(scope.cancel)  # also wakes the event loop

    signal.signal(signal.SIGINT, cancel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _questions(session: _ChatSession, output: TextIO) -> Iterator[str]:
    """Yield questions until the user ends the chat. A prompt and slash commands are available only on a terminal."""
    if sys.stdin is None:
        return
    screen = session.screen
    if screen is not None and sys.stdin.isatty() and output.isatty():
        yield from _prompted_questions(session, screen, output)
        return
    while (line := sys.stdin.readline()) and line.strip() != _QUIT:
        if question := line.strip():
            session.view.question(question)
            yield question


def _prompted_questions(session: _ChatSession, screen: Transcript, output: TextIO) -> Iterator[str]:
    prompt = Prompt(output, tuple(_COMMANDS))
    prompt.add_to_history(session.questions)
    screen.remark(session.greeting)
    session.decide = partial(decide, screen=screen, prompt=prompt)
    if prompt.can_edit:
        session.while_answering = no_echo
    while True:
        screen.prepare_prompt()
        line = prompt.read_question()
        if line is None or line.strip() == _QUIT:
            return
        question = line.strip()
        if question.startswith("/"):
            session.run_command(question, screen, prompt)
        elif question:
            yield question


# The file of `--continue`. It is written in the message format of OpenAI. Messages of any provider can be read.

_ENCODING: Final[dict[str, Any]] = {"encoding": "utf-8", "errors": "surrogatepass"}
"""The encoding of the file. A model may write half of a surrogate pair, which `surrogatepass` keeps."""


def read_conversation(path: str) -> tuple[list[Any], list[Message]]:
    """Return the JSON messages in the file, and the same messages parsed.

    Raises FileNotFoundError for a missing file, and CommandError for an invalid file.
    """
    try:
        messages = json.loads(Path(path).read_text(**_ENCODING))
        if not isinstance(messages, list):
            raise ValueError("expected a list of messages")
        return messages, read_messages(messages, system=True)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CommandError(f"--continue: {path}: it cannot be read: {reason_of(error)}") from None
    except (ValueError, RecursionError) as error:
        raise CommandError(f"--continue: {path}: it is not a conversation: {one_line(str(error))}") from None


def replace_conversation(path: str, messages: list[Any]) -> None:
    """Write the messages atomically to a file that only the current user can read. Raises OSError."""
    target = Path(os.path.realpath(path))  # replace the target of a symbolic link and keep the link
    with tempfile.NamedTemporaryFile(
        "w", dir=target.parent, prefix=f".{target.name}.", delete=False, **_ENCODING
    ) as file:
        try:
            json.dump(messages, file, ensure_ascii=False, indent=2)
            file.flush()
            Path(file.name).replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(file.name).unlink()
            raise
