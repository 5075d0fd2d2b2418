"""The command `streamtools chat`. It reads questions from standard input, and shows the answers of a model.

Each answer runs in a new event loop. No event loop runs while a question is read. So the prompt can use the line
editing of the terminal, and Ctrl-C at the prompt ends the chat.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import threading
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import anyio
import httpx

from streamtools import RunnerOptions
from streamtools.apps.cli.errors import CommandError, ErrorOutput, reason_of
from streamtools.apps.cli.model_options import CommandModel, command_errors, import_tools, proxy_for
from streamtools.apps.cli.printable import one_line, printable
from streamtools.apps.cli.views import JsonLines, View, open_recording_file, open_transcript
from streamtools.history import Assistant, Message, User
from streamtools.recording import RecordingTransport
from streamtools.stream.result import TurnResult
from streamtools.tools import Answer, Approve, Deny, MemoryLedger, Suspension
from streamtools.tools.approvals import Decision

if TYPE_CHECKING:  # this import needs rich, which is optional
    from streamtools.apps.cli.transcript import Transcript

if TYPE_CHECKING:  # this import needs rich, which is optional
    from streamtools.apps.cli.transcript import Transcript


class Prompt:
    """Reads lines from a terminal, below the transcript. `output` is the terminal."""

    def __init__(self, transcript: Transcript, output: TextIO) -> None:
        self._transcript = transcript
        self._output = output
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - the import adds line editing and a history to `input`

    def read_question(self) -> str:
        """Read a line that is not blank. Returns "" at the end of the input. Raises KeyboardInterrupt for Ctrl-C."""
        line: str | None = ""
        while line is not None and not line.strip():
            self._transcript.prepare_prompt()
            line = self._read("❯ ")
        return line or ""

    def decide(self, suspension: Suspension) -> dict[str, Decision]:
        """Show each pending call with all its arguments, and ask the user. Returns the decisions by call id.

        The user allows or denies the call of a tool that needs approval, and enters the result of a client tool.
        """
        decisions: dict[str, Decision] = {}
        for question in suspension.questions:
            call = question.call
            self._transcript.remark(f"✋ {call.name}")
            self._transcript.write(printable(json.dumps(call.arguments, ensure_ascii=False, indent=2)))
            if not question.approval:
                text = self._read("What is the result (text or JSON)? ")
                decisions[call.id] = Answer(_json_or_text(text)) if text is not None else Deny()
            elif (self._read(f"Run {one_line(call.name)}? [y/N] ") or "").strip().lower() in ("y", "yes"):
                decisions[call.id] = Approve(question.digest)
            else:
                decisions[call.id] = Deny((self._read("Why not (for the model)? ") or "").strip())
        return decisions

    def _read(self, label: str) -> str | None:
        """Read a line. Returns None at the end of the input."""
        try:
            with contextlib.redirect_stdout(self._output):  # `input` needs the terminal as standard output
                return input(label)
        except (EOFError, KeyboardInterrupt) as end:
            self._output.write("\n")
            self._output.flush()
            if isinstance(end, KeyboardInterrupt):
                raise
            return None


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


_QUIT = "/quit"


def run_chat(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the command, and return its exit status."""
    if args.once is not None and not args.once.strip():
        raise CommandError("--once must not be empty")
    transcript = None if args.json else open_transcript(output, errors, raw=args.raw)
    recording = contextlib.nullcontext() if args.record is None else open_recording_file(args.record, "--record")
    with recording as file:
        session = _ChatSession(args, transcript or JsonLines(output), file, errors)
        if args.once is not None:
            session.view.question(args.once)
            status = session.answer(args.once)
            if session.was_stopped:
                raise KeyboardInterrupt
            return status
        return max(map(session.answer, _questions(session, transcript, output)), default=0)


class _ChatSession:
    """A conversation with a model. `view` shows the answers."""

    def __init__(self, args: Namespace, view: View, recording: BinaryIO | None, errors: ErrorOutput) -> None:
        self._args = args
        self.view = view
        self._recording = recording
        self._write_error: OSError | None = None
        self._errors = errors
        self._ledger = MemoryLedger()
        self._model = CommandModel(args, import_tools(args.tools) if args.tools is not None else None)
        self.label = self._model.label
        self._history: list[Message] = self._model.system_messages
        self._suspension: Suspension | None = None
        self.decide: Callable[[Suspension], dict[str, Decision]] | None = None
        """A function that asks the user for decisions about pending calls. With None, the calls stay pending."""
        self.was_stopped = False
        """True if Ctrl-C stopped the last answer."""

    def answer(self, question: str) -> int:
        """Show the answer to a question, and ask for the decisions about its calls. Return the exit status.

        Raises CommandError if the recording cannot be written.
        """
        result = anyio.run(self._show_turn, [*self._history, User(question)], {})
        while self.decide is not None and (suspension := self._suspension) is not None:
            try:
                decisions = self.decide(suspension)
            except KeyboardInterrupt:  # ends only the answer; the chat continues
                break
            result = anyio.run(self._show_turn, self._history, {"resume": suspension, "approvals": decisions})
        status = self._errors.report_result(self.label, result)
        if (error := self._write_error) is not None:
            raise CommandError(f"the recording cannot be written: {reason_of(error)}", status=1)
        return status

    async def _show_turn(self, history: list[Message], resume_options: dict[str, Any]) -> TurnResult:
        """Request an answer and show it. A question without an answer is not added to the history.

        `resume_options` holds the options `resume` and `approvals` if the last answer is resumed, or is empty.
        """
        start = time.perf_counter()
        with command_errors():
            async with self._http_client() as http_client:
                model = self._model.make_client(http_client)
                runner = RunnerOptions(ledger=self._ledger)
                events = self._model.chat(history, model, runner=runner, **resume_options)
                with anyio.CancelScope() as scope, _cancelled_by_ctrl_c(scope):
                    async with events:
                        async for event in events:
                            self.view.show(event)
                async for event in events:  # the remaining events, if Ctrl-C cancelled the run
                    self.view.show(event)
        self.was_stopped = scope.cancelled_caught
        self._suspension = events.suspension
        if resume_options or any(isinstance(message, Assistant) for message in events.history[len(history) :]):
            self._history = events.history
        self.view.summarize(events.result, time.perf_counter() - start)
        return events.result

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
        self._write_error = self._write_error or transport.write_error


@contextlib.contextmanager
def _cancelled_by_ctrl_c(scope: anyio.CancelScope) -> Iterator[None]:
    """Cancel `scope` on the first Ctrl-C in the `with` block. A second Ctrl-C raises KeyboardInterrupt.

    This replaces the signal handler of asyncio, which would end the event loop. If the process ignores SIGINT, as in a
    background job of a shell, this changes nothing.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
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
        signal.signal(signal.SIGINT, previous)


def _questions(session: _ChatSession, transcript: Transcript | None, output: TextIO) -> Iterator[str]:
    """Yield questions until the user ends the chat. On a terminal, show a prompt, and ask for decisions about calls."""
    if sys.stdin is None:
        return
    if transcript is not None and sys.stdin.isatty() and output.isatty():
        prompt = Prompt(transcript, output)
        session.decide = prompt.decide
        transcript.remark(f"{session.label}. Ctrl-C stops an answer, {_QUIT} ends the chat.")
        read_line = prompt.read_question
    else:
        read_line, prompt = sys.stdin.readline, None
    while (line := read_line()) and line.strip() != _QUIT:
        if question := line.strip():
            if prompt is None:
                session.view.question(question)
            yield question
