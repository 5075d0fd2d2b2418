"""A run as text for people, while it happens.

The text of the answer is written as it comes. All else is on lines of its own, with signs and colours: calls where the
model wrote them, without their text; what the tools did; warnings and errors. On a terminal, "waiting" is one line that
the call replaces; anywhere else, written text is never changed.

The layout consists of line feeds alone. A line in the middle of a text adds a line feed to it, and takes one from the
text that follows if it begins with one; so an answer without calls is written byte for byte.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NoReturn, assert_never

from rich.console import Console
from rich.control import Control
from rich.segment import ControlType, Segment, Segments
from rich.style import Style
from rich.text import Text as Line

from streamtools import events
from streamtools.apps.cli.complaints import Printable, crop, one_line, printable
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.outputs.plain_text import UiTexts
from streamtools.stream.result import TurnResult

VALUE = 200
"""Characters of arguments, results and progress that are shown; all of them are in the events."""

_Block = Literal["heading", "prompt", "text", "reasoning", "report", "summary"]

_DIM_ITALIC = Style(dim=True, italic=True)
_CLEAR = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]<>()#+!|~])")


class Terminal(Console):
    """A console for text that is not markup, which raises BrokenPipeError where rich would end the process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> NoReturn:
        """Raise what rich has just caught."""
        raise


class Transcript:
    """Takes the events of runs, one by one. `live` says whether lines may be replaced: on a terminal, by default.

    With `raw`, calls in text are shown as the model wrote them.
    """

    def __init__(
        self, console: Console, *, texts: UiTexts | None = None, live: bool | None = None, raw: bool = False
    ) -> None:
        self._console = console
        self._texts = texts or UiTexts()
        self._live = (console.file.isatty() and console.is_interactive) if live is None else live
        self._printable = Printable()
        self._block: _Block | None = None
        self._line_feeds = 2  # that the output ends with; the first line needs none above it
        self._lent = 0  # of these, how many were added where the text may bring its own
        self._waiting = False  # a line stands there that is to be replaced
        self._names: dict[str, str] = {}  # of the tools at work
        self._raw = 0
        self.shows_raw = raw
        self._later: list[events.Warning] = []  # what repeats visible text is shown behind it

    def show(self, event: events.UIEvent) -> None:
        """Write an event, if it has something to show, at once."""
        self._clear()
        match event:
            case events.Text(text):
                self._enter("text")
                self._write(self._printable.feed(text))
            case events.Reasoning(text):
                if text and self._enter("reasoning"):
                    self._write("💭 ", _DIM_ITALIC)
                    self._lent = 2
                self._write(self._printable.feed(text), _DIM_ITALIC)
            case events.Thinking(active):
                if active:
                    self._wait(self._words(event))
            case events.CallStart(_, name):
                if self._live:
                    self._wait(f"{self._texts.waiting} {one_line(name)}")
            case events.Call(call):
                if self.shows_raw and call.raw:
                    self._notice("text", printable(call.raw.strip("\n")), "cyan")
                else:
                    self._notice("text", f"→ {_call(call)}", "cyan")
            case events.Executing():
                self._names[event.call.id] = one_line(event.call.name)
                self._notice("report", self._words(event), "yellow")
            case events.Executed(call, result, message, elapsed):
                value = "" if message else f" → {_value(result)}"
                self._notice("report", f"{self._words(event)}{value} ({seconds_text(elapsed)})", "green")
            case events.Progress(call_id, data):
                self._notice("report", f"   {self._names.get(call_id, call_id)}: {_value(data)}", "dim")
            case events.ApprovalRequested(call):
                self._notice("report", f"✋ Approval requested: {_call(call)}", "yellow")
            case events.Error():
                malformed = event.call_id is not None and event.call is None
                self._notice("text" if malformed else "report", self._error(event), "bold red")
            case events.Warning(code=Code.NEAR_MISS):
                self._later.append(event)
            case events.Warning():
                self._warn("text", event)
            case events.StepEnd():
                for warning in self._later:
                    self._warn("report", warning)
                self._later.clear()
            case events.Done():
                if words := self._texts.render(event):
                    self._notice("report", _plain(words), "yellow")
            case events.Raw():
                self._raw += 1
            case events.StepSuperseded():
                self._notice("report", "↺ The answer so far counts for nothing; another model begins anew.", "yellow")
            case events.FollowUp():
                self._notice("report", "↩ The results go back to the model.", "dim")
            case events.Matched(rule, action):
                self._notice("report", f"✂ {one_line(rule)}: {action}", "dim")
            case events.Markup() | events.Partial():
                pass
            case events.Start() | events.StepStart() | events.CallDelta() | events.UsageReport():
                pass
            case _:
                assert_never(event)

    def _warn(self, block: _Block, warning: events.Warning) -> None:
        times = "" if warning.count is None else f" ({warning.count})"
        self._notice(block, f"⚠ {one_line(warning.message)}{times} ({warning.code})", "yellow")

    def summarise(self, result: TurnResult, seconds: float) -> None:
        """Write the summary of a run, as its last line."""
        self._clear()
        self._enter("summary")
        self._line(Line.assemble(*describe(result, seconds, raw=self._raw)))
        self._block = None
        self._raw = 0

    def heading(self, title: str, question: str) -> None:
        """Write what comes next, and what the model was asked."""
        self._enter("heading")
        line = Line.assemble(("── ", "dim"), (one_line(title), "bold"), " ")
        line.append("─" * max(2, self._console.width - line.cell_len), "dim")
        self._line(line)
        self.question(question)

    def question(self, text: str) -> None:
        """Write what the model is asked."""
        self._enter("heading")
        self._line(Line(f"❯ {printable(text)}".replace("\n", "\n  "), "bold"))

    def prompt(self) -> None:
        """Leave a blank line above the prompt."""
        self._enter("prompt")
        self._line_feeds = 1
        self._block = None

    def remark(self, text: str) -> None:
        """Write a paragraph of our own."""
        self._enter("heading")
        self._line(Line(one_line(text), "dim"))
        self._block = None

    def write(self, text: str) -> None:
        """Write lines of our own, as they are."""
        self._enter("heading")
        self._put(f"{text}\n")
        self._block = None

    def end_line(self) -> None:
        """End the line that is being written, before another writer uses the same terminal."""
        self._clear()
        self._put(self._printable.close())
        if not self._line_feeds:
            self._put("\n")
            self._lent = 1

    # What stands where.

    def _enter(self, block: _Block) -> bool:
        """Begin a block, a blank line below the one before; return whether it is another one."""
        if block == self._block:
            return False
        self._put(self._printable.close())
        if self._line_feeds < 2:
            self._put("\n" * (2 - self._line_feeds))
        self._lent = 0 if self._block is None else 2
        self._block = block
        return True

    def _write(self, text: str, style: Style | None = None) -> None:
        """Write text of the model, without the line feeds that have been added already."""
        if self._lent:
            rest = text.lstrip("\n")
            owed = min(self._lent, len(text) - len(rest))
            self._lent = 0 if rest else self._lent - owed
            text = text[owed:]
        self._put(text, style)

    def _notice(self, block: _Block, text: str, style: str) -> None:
        self._enter(block)
        self.end_line()
        self._line(Line(text, style))
        self._lent = 1

    def _wait(self, text: str) -> None:
        if not self._live:
            self._notice("text", text, "dim")
            return
        self._enter("text")
        self.end_line()
        line = Line(text, "dim")
        line.truncate(self._console.width - 1, overflow="ellipsis")
        self._console.print(line, end="", soft_wrap=True)
        self._waiting = True

    def _clear(self) -> None:
        if self._waiting:
            self._waiting = False
            self._console.control(_CLEAR)

    # How it gets out.

    def _put(self, text: str, style: Style | None = None) -> None:
        if not text:
            return
        if style is None:
            self._console.file.write(text)
            self._console.file.flush()
        else:
            self._console.print(Segments([Segment(text, style)]), end="", soft_wrap=True)
        rest = text.rstrip("\n")
        self._line_feeds = len(text) - len(rest) + (0 if rest else self._line_feeds)

    def _line(self, line: Line) -> None:
        self._console.print(line, soft_wrap=not self._live)
        self._line_feeds = 1

    # What is said.

    def _words(self, event: events.UIEvent) -> str:
        return _plain(self._texts.render(event) or "")

    def _error(self, event: events.Error) -> str:
        words, message = self._words(event), one_line(event.message)
        status = "" if event.status is None else f", status {event.status}"
        text = words if message in words else f"{words}: {message}"
        return f"{text} ({event.code}{status})"


def _plain(markdown: str) -> str:
    """Return a sentence of `UiTexts` as a terminal shows it: emphasis is colour there, and nothing needs escaping."""
    if len(markdown) > 1 and markdown[0] == markdown[-1] == "*":
        markdown = markdown[1:-1]
    return one_line(_ESCAPED.sub(r"\1", markdown))


def _call(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={_value(value)}" for name, value in call.arguments.items())
    return crop(f"{one_line(call.name)}({one_line(arguments)})", VALUE)


def _value(value: Any) -> str:
    return crop(one_line(json.dumps(value, ensure_ascii=False)), VALUE)


_SIGNS = {"finished": ("✔", "bold green"), "truncated": ("✂", "bold yellow"), "failed": ("✘", "bold red")}
_OTHER_SIGN = ("■", "bold yellow")


def describe(result: TurnResult, seconds: float, *, raw: int = 0) -> list[tuple[str, str]]:
    """Return the pieces of the line and their styles. `raw` counts the events that no adapter understood."""
    sign, style = _OTHER_SIGN if result.pending else _SIGNS.get(result.reason or "", _OTHER_SIGN)
    malformed = sum(error.call_id is not None and error.call is None for error in result.errors)
    facts = [
        "" if malformed and not result.calls else _calls(result),
        _count(malformed, "malformed call"),
        _count(len(result.warnings), "warning"),
        _count(raw, "event that was not understood", "events that were not understood"),
        _count(len(result.steps) if len(result.steps) > 1 else 0, "step"),
        _tokens(result.usage),
        seconds_text(seconds),
    ]
    return [(f"{sign} {_ending(result)}", style), ("".join(f" · {fact}" for fact in facts if fact), "")]


def seconds_text(seconds: float) -> str:
    """Return a duration with its unit, in two or three digits.

    >>> seconds_text(0.00042), seconds_text(0.0123), seconds_text(1.25)
    ('0.42 ms', '12 ms', '1.2 s')
    """
    if seconds < 0.01:
        return f"{seconds * 1000:.2f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def _ending(result: TurnResult) -> str:
    why = result.finish_reason
    if result.reason == "failed":
        why = next((error.code for error in reversed(result.errors) if error.call_id is None), why)
    reason = "pending" if result.reason == "finished" and result.pending else result.reason
    return f"{reason or 'unfinished'}{f' ({one_line(why)})' if why else ''}"


def _calls(result: TurnResult) -> str:
    failed = sum(outcome.error is not None for outcome in result.outcomes)
    parts = [
        _count(len(result.outcomes) - failed, "executed", "executed"),
        _count(failed, "failed", "failed"),
        _count(len(result.pending), "pending", "pending"),
    ]
    details = ", ".join(part for part in parts if part)
    return (_count(len(result.calls), "call") or "no calls") + (details and f": {details}")


def _tokens(usage: events.Usage | None) -> str:
    if usage is None:
        return ""
    if usage.input is None and usage.output is None:
        return _count(usage.total or 0, "token")
    parts = [(usage.input, "tokens in"), (usage.output, "tokens out"), (usage.reasoning, "of reasoning")]
    return ", ".join(f"{count:,} {what}" for count, what in parts if count is not None)


def _count(count: int, one: str, several: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}" if count else ""
