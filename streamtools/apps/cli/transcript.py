"""A run as text for people, while it happens.

The text of the answer is written as it comes. All else is on lines of its own, with signs and colours: calls where the
model wrote them, without their text; what the tools did; warnings and errors. On a terminal, what is under way (a call
that is being written, tools at work and how far they are) stands in lines below, which change in place, and Markdown
can be drawn while it grows; anywhere else, written text is never changed.

The layout consists of line feeds alone. A line in the middle of a text adds a line feed to it, and takes one from the
text that follows if it begins with one; so an answer without calls is written byte for byte.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, assert_never

from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text as Line

from streamtools import events
from streamtools.apps.cli.complaints import Printable, crop, one_line, printable
from streamtools.apps.cli.growing_markdown import GrowingMarkdown, LiveRegion, styled_lines
from streamtools.apps.cli.run_summary import describe, seconds_text
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.outputs.ui_texts import UiTexts
from streamtools.stream.result import TurnResult

VALUE = 200
"""Characters of arguments, results and progress that are shown; all of them are in the events."""

_Block = Literal["heading", "prompt", "text", "reasoning", "report", "summary"]

_DIM_ITALIC = Style(dim=True, italic=True)
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]<>()#+!|~])")


@dataclass
class _Running:
    name: str
    words: str
    since: float
    progress: str = ""

    def line(self, now: float) -> str:
        seconds = int(now - self.since)
        return " ".join(filter(None, (self.words or self.name, self.progress, f"({seconds} s)" if seconds else "")))


class Terminal(Console):
    """A console for text that is not markup, which raises BrokenPipeError where rich would end the process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> NoReturn:
        """Raise what rich has just caught."""
        raise


class Transcript:
    """Takes the events of runs, one by one. `live` says whether lines may be replaced: on a terminal, by default.

    There, with `markdown`, the answer is drawn as Markdown, and `pause` is how many seconds are left at least between
    two drawings; `tick` makes up for those that were left out. With `raw`, calls in text are shown as the model wrote
    them, and Markdown too.
    """

    def __init__(
        self,
        console: Console,
        *,
        texts: UiTexts | None = None,
        live: bool | None = None,
        raw: bool = False,
        markdown: bool = False,
        pause: float = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._texts = texts or UiTexts()
        self._live = (console.file.isatty() and console.is_interactive) if live is None else live
        self._printable = Printable()
        self._block: _Block | None = None
        self._line_feeds = 2  # that the output ends with; the first line needs none above it
        self._lent = 0  # of these, how many were added where the text may bring its own
        self._region = LiveRegion(console)
        self._markdown = markdown and self._live
        self._text: GrowingMarkdown | None = None  # what is being drawn
        self._waiting: str | None = None  # for a call that is being written
        self._running: dict[str, _Running] = {}  # the tools at work
        self._pause, self._clock = pause, clock
        self._painted = -pause
        self._raw = 0
        self.shows_raw = raw
        self._later: list[events.Warning] = []  # what repeats visible text is shown behind it

    def show(self, event: events.UIEvent) -> None:
        """Write an event, if it has something to show, at once."""
        if not self._drawn:
            self._settle()
        self._write_event(event)
        if not isinstance(event, events.Text) or self._clock() - self._painted >= self._pause:
            self.tick()

    def tick(self) -> None:
        """Bring up to date what changes in place."""
        if not self._live or not (self._text or self._line_feeds):
            return  # a line of the model's is being written
        self._painted = self._clock()
        below = [self._waiting] if self._waiting else []
        below += [each.line(self._painted) for each in self._running.values()]
        below = below[-max(1, self._console.height // 2) :]
        status = [line for text in below for line in self._status(text)]
        finished, live = self._text.lines(max(1, self._console.height - 3 - len(status))) if self._text else ([], [])
        self._region.paint(finished, [*live, *([""] if live and status else []), *status])

    def _write_event(self, event: events.UIEvent) -> None:
        match event:
            case events.Text(text):
                self._enter("text")
                text = self._printable.feed(text)
                if self._drawn and text:
                    self._text = self._text or GrowingMarkdown(self._console)
                    self._text.feed(text)
                else:
                    self._write(text)
            case events.Reasoning(text):
                if text and self._enter("reasoning"):
                    self._write("💭 ", _DIM_ITALIC)
                    self._lent = 2
                self._write(self._printable.feed(text), _DIM_ITALIC)
            case events.Thinking(active):
                if active:
                    self._wait(self._words(event))
                else:
                    self._waiting = None
            case events.CallStart(_, name):
                if self._live:
                    self._wait(f"{self._texts.waiting} {one_line(name)}")
            case events.Call(call):
                if self.shows_raw and call.raw:
                    self._notice("text", printable(call.raw.strip("\n")), "cyan")
                else:
                    self._notice("text", f"→ {_call(call)}", "cyan")
            case events.Executing():
                self._running[event.call.id] = _Running(one_line(event.call.name), self._words(event), self._clock())
                self._at_work(self._words(event), "yellow")
            case events.Executed(call, result, message, elapsed):
                self._running.pop(call.id, None)
                value = "" if message else f" → {_value(result)}"
                self._notice("report", f"{self._words(event)}{value} ({seconds_text(elapsed)})", "green")
            case events.Progress(call_id, data):
                running = self._running.get(call_id) or _Running(one_line(call_id), "", self._clock())
                running.progress = _value(data)
                self._at_work(f"   {running.name}: {running.progress}", "dim")
            case events.ApprovalRequested(call):
                self._notice("report", f"✋ Approval requested: {_call(call)}", "yellow")
            case events.Error():
                self._running.pop(event.call_id or "", None)
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
                self._running.clear()
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
            case events.Start() | events.StepStart() | events.CallDelta() | events.UsageReport():
                pass
            case events.Markup() | events.Partial():
                pass
            case _:
                assert_never(event)

    def _warn(self, block: _Block, warning: events.Warning) -> None:
        times = "" if warning.count is None else f" ({warning.count})"
        self._notice(block, f"⚠ {one_line(warning.message)}{times} ({warning.code})", "yellow")

    def summarise(self, result: TurnResult, seconds: float) -> None:
        """Write the summary of a run, as its last line."""
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
        self._settle()
        self._put(self._printable.close())
        if not self._line_feeds:
            self._put("\n")
            self._lent = 1

    # What stands where.

    def _enter(self, block: _Block) -> bool:
        """Begin a block, a blank line below the one before; return whether it is another one."""
        if block == self._block:
            return False
        self._settle()
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
        self._waiting = None
        self._enter("report" if self._drawn else block)  # in text that is drawn, nothing else can stand
        self.end_line()
        self._line(Line(text, style))
        self._lent = 1

    def _wait(self, text: str) -> None:
        if not self._live:
            self._notice("text", text, "dim")
            return
        if self._text is None:
            self._enter("text")
            self.end_line()
        self._waiting = text

    def _at_work(self, text: str, style: str) -> None:
        """Tell what a tool does: where lines can change, those below the text do it."""
        if not self._live:
            self._notice("report", text, style)
        elif self._text is None:
            self._enter("report")
            self.end_line()

    @property
    def _drawn(self) -> bool:
        """Whether text is drawn as Markdown now."""
        return self._markdown and not self.shows_raw

    def _settle(self) -> None:
        """Let what changed in place stay as it is, or go if it stands for what is under way."""
        finished: list[str] = []
        if self._text is not None:
            self._text.feed(self._printable.close())
            finished, _ = self._text.lines(0, final=True)
            self._text, self._line_feeds, self._lent = None, 1, 1
        self._region.paint(finished, [])

    def _status(self, text: str) -> list[str]:
        line = Line(text, "dim")
        line.truncate(self._console.width - 1, overflow="ellipsis")
        return styled_lines(self._console, line, self._console.width)

    # How it gets out.

    def _put(self, text: str, style: Style | None = None) -> None:
        if not text:
            return
        self._settle()
        if style is None:
            self._console.file.write(text)
            self._console.file.flush()
        else:
            self._console.print(Segments([Segment(text, style)]), end="", soft_wrap=True)
        rest = text.rstrip("\n")
        self._line_feeds = len(text) - len(rest) + (0 if rest else self._line_feeds)

    def _line(self, line: Line) -> None:
        self._settle()
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
