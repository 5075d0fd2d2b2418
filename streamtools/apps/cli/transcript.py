"""Shows a run as text for people while it continues.

The text of the answer is written when it arrives. Other events are written on separate lines with signs and colours: a
call at the position where the model wrote it, results of tools, warnings and errors. On a terminal, the text can be
rendered as Markdown. A live region below the text shows the call that the model writes now, and the running tools. In
a file, text is only appended.

Blocks are separated by line feeds. If a line is inserted into the text, a line feed is added before it. If the next
text begins with a line feed, this line feed is skipped. So an answer without calls is written unchanged.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, assert_never

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.segment import Segment, Segments
from rich.style import Style
from rich.text import Text as Line

from streamtools import events
from streamtools.apps.cli.markdown import MarkdownStream
from streamtools.apps.cli.printable import Printable, crop, one_line, printable
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.outputs.ui_texts import UiTexts
from streamtools.stream.result import TurnResult

MAX_VALUE = 200
"""The maximum length in characters of shown arguments, results and progress. Longer values are shortened."""

_DRAW_SHARE = 8  # the pause after drawing, in multiples of the drawing time; so drawing takes at most 1/9 of the time

_Block = Literal["heading", "prompt", "text", "reasoning", "report", "summary"]

_DIM_ITALIC = Style(dim=True, italic=True)
_MARKDOWN_ESCAPE = re.compile(r"\\([\\`*_{}\[\]<>()#+!|~])")


@dataclass
class _RunningTool:
    name: str
    text: str
    started_at: float
    progress: str = ""

    def status(self, now: float) -> str:
        seconds = int(now - self.started_at)
        return " ".join(filter(None, (self.text or self.name, self.progress, f"({seconds} s)" if seconds else "")))


class Terminal(Console):
    """A rich console without markup. For a broken pipe it raises the error, while rich would end the process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> NoReturn:
        """Raise the current OSError again."""
        raise


class Transcript:
    """Shows the events of runs.

    With `live=True`, lines may change in place. None means True on a terminal. With `live` and `markdown=True`, the
    text is rendered as Markdown, at most every `min_interval` seconds. `update` draws the text that was skipped. With
    `raw=True`, calls and Markdown are shown as the model wrote them. `clock` returns the time in seconds.
    """

    def __init__(
        self,
        console: Console,
        *,
        texts: UiTexts | None = None,
        live: bool | None = None,
        raw: bool = False,
        markdown: bool = False,
        min_interval: float = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._texts = texts or UiTexts()
        self._is_live = (console.file.isatty() and console.is_interactive) if live is None else live
        self._printable = Printable()
        self._block: _Block | None = None
        self._line_feeds = 2  # number of line feeds at the end of the output; 2 prevents a blank line at the top
        self._added_line_feeds = 0  # number of added line feeds; the next text skips as many of its leading line feeds
        self._live: Live | None = None
        self._renders_markdown = markdown and self._is_live
        self._markdown: MarkdownStream | None = None
        self._waiting: str | None = None  # the status text of the call that the model writes now
        self._tools: dict[str, _RunningTool] = {}
        self._min_interval, self._clock = min_interval, clock
        self._next_draw = 0.0
        self._raw_events = 0
        self.raw = raw
        self._near_misses: list[events.Warning] = []  # shown after the step, because their text is already visible

    def show(self, event: events.UIEvent) -> None:
        """Write an event immediately. Some events are not shown."""
        self._write_event(event)
        if not isinstance(event, events.Text) or self._clock() >= self._next_draw:
            self.update()

    def update(self) -> None:
        """Draw the live region again: the last block of Markdown, and the status lines."""
        if not self._is_live or not (self._markdown or self._line_feeds):
            return  # the cursor is within a line of text, so a live region cannot be drawn
        start = self._clock()
        statuses = [self._waiting] if self._waiting else []
        statuses += [tool.status(start) for tool in self._tools.values()]
        statuses = statuses[-max(1, self._console.height // 2) :]
        parts: list[RenderableType] = []
        if self._markdown is not None:
            if (finished := self._markdown.take_finished()) is not None:
                self._console.print(finished)
            height = max(1, self._console.height - 3 - len(statuses))
            if (block := self._markdown.unfinished(height)) is not None:
                parts += [block, ""] if statuses else [block]
        parts += [Line(text, "dim", no_wrap=True, overflow="ellipsis") for text in statuses]
        self._draw(parts)
        now = self._clock()
        self._next_draw = now + max(self._min_interval, _DRAW_SHARE * (now - start))

    def _draw(self, parts: list[RenderableType]) -> None:
        if self._live is None and not parts:
            return
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                vertical_overflow="crop",
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(Group(*parts), refresh=True)

    def _write_event(self, event: events.UIEvent) -> None:
        match event:
            case events.Text(text):
                self._enter("text")
                text = self._printable.feed(text)
                if self._draws_markdown and text:
                    self._markdown = self._markdown or MarkdownStream()
                    self._markdown.feed(text)
                else:
                    self._write(text)
            case events.Reasoning(text):
                if text and self._enter("reasoning"):
                    self._write("💭 ", _DIM_ITALIC)
                    self._added_line_feeds = 2
                self._write(self._printable.feed(text), _DIM_ITALIC)
            case events.Thinking(active):
                if active:
                    self._wait(self._text_of(event))
                else:
                    self._waiting = None
            case events.CallStart(_, name):
                if self._is_live:
                    self._wait(f"{self._texts.waiting} {one_line(name)}")
            case events.Call(call):
                if self.raw and call.raw:
                    self._notice("text", printable(call.raw.strip("\n")), "cyan")
                else:
                    self._notice("text", f"→ {_call(call)}", "cyan")
            case events.Executing():
                text = self._text_of(event)
                self._tools[event.call.id] = _RunningTool(one_line(event.call.name), text, self._clock())
                self._report_tool(text, "yellow")
            case events.Executed(call, result, message, elapsed):
                self._tools.pop(call.id, None)
                value = "" if message else f" → {_value(result)}"
                self._notice("report", f"{self._text_of(event)}{value} ({format_duration(elapsed)})", "green")
            case events.Progress(call_id, data):
                tool = self._tools.get(call_id) or _RunningTool(one_line(call_id), "", self._clock())
                tool.progress = _value(data)
                self._report_tool(f"   {tool.name}: {tool.progress}", "dim")
            case events.ApprovalRequested(call):
                self._notice("report", f"✋ Approval requested: {_call(call)}", "yellow")
            case events.Error():
                self._tools.pop(event.call_id or "", None)
                is_malformed_call = event.call_id is not None and event.call is None
                self._notice("text" if is_malformed_call else "report", self._error(event), "bold red")
            case events.Warning(code=Code.NEAR_MISS):
                self._near_misses.append(event)
            case events.Warning():
                self._warn("text", event)
            case events.StepEnd():
                for warning in self._near_misses:
                    self._warn("report", warning)
                self._near_misses.clear()
            case events.Done():
                self._tools.clear()
                if self._texts.render(event):
                    self._notice("report", self._text_of(event), "yellow")
            case events.Raw():
                self._raw_events += 1
            case events.StepSuperseded():
                self._notice("report", "↺ This answer is discarded. Another model starts again.", "yellow")
            case events.FollowUp():
                self._notice("report", "↩ The results are sent to the model.", "dim")
            case events.Matched(rule, action):
                self._notice("report", f"✂ {one_line(rule)}: {action}", "dim")
            case events.Start() | events.StepStart() | events.CallDelta() | events.UsageReport():
                pass
            case events.Markup() | events.Partial():
                pass
            case _:
                assert_never(event)

    def _warn(self, block: _Block, warning: events.Warning) -> None:
        count = "" if warning.count is None else f" ({warning.count})"
        self._notice(block, f"⚠ {one_line(warning.message)}{count} ({warning.code})", "yellow")

    def summarize(self, result: TurnResult, seconds: float) -> None:
        """Write the summary of a run as its last line. `seconds` is the duration of the run."""
        self._enter("summary")
        self._write_line(Line.assemble(*summarize(result, seconds, raw_events=self._raw_events)))
        self._block = None
        self._raw_events = 0

    def heading(self, title: str, question: str) -> None:
        """Write a title, and the question below it."""
        self._enter("heading")
        line = Line.assemble(("── ", "dim"), (one_line(title), "bold"), " ")
        line.append("─" * max(2, self._console.width - line.cell_len), "dim")
        self._write_line(line)
        self.question(question)

    def question(self, text: str) -> None:
        self._enter("heading")
        self._write_line(Line(f"❯ {printable(text)}".replace("\n", "\n  "), "bold"))

    def prepare_prompt(self) -> None:
        """Write a blank line above the prompt."""
        self._enter("prompt")
        self._line_feeds = 1
        self._block = None

    def remark(self, text: str) -> None:
        """Write a message of the command as a dim paragraph."""
        self._enter("heading")
        self._write_line(Line(one_line(text), "dim"))
        self._block = None

    def write(self, text: str) -> None:
        """Write lines of the command without a style."""
        self._enter("heading")
        self._put(f"{text}\n")
        self._block = None

    def end_line(self) -> None:
        """End the current line, so that other code can write to the same terminal."""
        self._settle()
        self._put(self._printable.close())
        if not self._line_feeds:
            self._put("\n")
            self._added_line_feeds = 1

    # These methods begin blocks, and add line feeds between them.

    def _enter(self, block: _Block) -> bool:
        """Begin a block, with a blank line before it. Returns False if `block` is already the current block."""
        if block == self._block:
            return False
        self._settle()
        self._put(self._printable.close())
        if self._line_feeds < 2:
            self._put("\n" * (2 - self._line_feeds))
        self._added_line_feeds = 0 if self._block is None else 2
        self._block = block
        return True

    def _write(self, text: str, style: Style | None = None) -> None:
        """Write text of the model. Leading line feeds are skipped if line feeds were already added."""
        if self._added_line_feeds:
            rest = text.lstrip("\n")
            skipped = min(self._added_line_feeds, len(text) - len(rest))
            self._added_line_feeds = 0 if rest else self._added_line_feeds - skipped
            text = text[skipped:]
        self._put(text, style)

    def _notice(self, block: _Block, text: str, style: str) -> None:
        self._waiting = None
        self._enter("report" if self._draws_markdown else block)  # lines cannot be inserted into rendered Markdown
        self.end_line()
        self._write_line(Line(text, style))
        self._added_line_feeds = 1

    def _wait(self, text: str) -> None:
        if not self._is_live:
            self._notice("text", text, "dim")
            return
        if self._markdown is None and self._live is None:
            self._enter("text")
            self.end_line()
        self._waiting = text

    def _report_tool(self, text: str, style: str) -> None:
        """Write the state of a tool as a line. In a live transcript, the live region shows it instead."""
        if not self._is_live:
            self._notice("report", text, style)
        elif self._markdown is None and self._live is None:
            self._enter("report")
            self.end_line()

    @property
    def _draws_markdown(self) -> bool:
        return self._renders_markdown and not self.raw

    def _settle(self) -> None:
        """Remove the live region, and print the remaining rendered text."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._markdown is not None:
            self._markdown.feed(self._printable.close())
            if (rest := self._markdown.close()) is not None:
                self._console.print(rest)
            self._markdown, self._line_feeds, self._added_line_feeds = None, 1, 1

    # These methods write to the console.

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

    def _write_line(self, line: Line) -> None:
        self._settle()
        self._console.print(line, soft_wrap=not self._is_live)
        self._line_feeds = 1

    # These methods return the texts of events.

    def _text_of(self, event: events.UIEvent) -> str:
        return _without_markdown(self._texts.render(event) or "")

    def _error(self, event: events.Error) -> str:
        text, message = self._text_of(event), one_line(event.message)
        status = "" if event.status is None else f", status {event.status}"
        return f"{text if message in text else f'{text}: {message}'} ({event.code}{status})"


def _without_markdown(text: str) -> str:
    """Remove the Markdown emphasis and escapes from a sentence of `UiTexts`."""
    if len(text) > 1 and text[0] == text[-1] == "*":
        text = text[1:-1]
    return one_line(_MARKDOWN_ESCAPE.sub(r"\1", text))


def _call(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={_value(value)}" for name, value in call.arguments.items())
    return crop(f"{one_line(call.name)}({one_line(arguments)})", MAX_VALUE)


def _value(value: Any) -> str:
    return crop(one_line(json.dumps(value, ensure_ascii=False)), MAX_VALUE)


# The summary of a run contains its end, its calls and their outcomes, warnings, tokens, and the duration.

_SIGNS = {"finished": ("✔", "bold green"), "truncated": ("✂", "bold yellow"), "failed": ("✘", "bold red")}
_OTHER_SIGN = ("■", "bold yellow")


def summarize(result: TurnResult, seconds: float, *, raw_events: int = 0) -> list[tuple[str, str]]:
    """Return the parts of the summary line with their styles.

    `raw_events` is the number of provider events that were not understood.
    """
    sign, style = _OTHER_SIGN if result.pending else _SIGNS.get(result.reason or "", _OTHER_SIGN)
    malformed = sum(error.call_id is not None and error.call is None for error in result.errors)
    facts = [
        "" if malformed and not result.calls else _call_counts(result),
        _count(malformed, "malformed call"),
        _count(len(result.warnings), "warning"),
        _count(raw_events, "event that was not understood", "events that were not understood"),
        _count(len(result.steps) if len(result.steps) > 1 else 0, "step"),
        _tokens(result.usage),
        format_duration(seconds),
    ]
    return [(f"{sign} {_ending(result)}", style), ("".join(f" · {fact}" for fact in facts if fact), "")]


def format_duration(seconds: float) -> str:
    """Format a duration with its unit and two or three digits.

    >>> format_duration(0.00042), format_duration(0.0123), format_duration(1.25)
    ('0.42 ms', '12 ms', '1.2 s')
    """
    if seconds < 0.01:
        return f"{seconds * 1000:.2f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def _ending(result: TurnResult) -> str:
    detail = result.finish_reason
    if result.reason == "failed":
        detail = next((error.code for error in reversed(result.errors) if error.call_id is None), detail)
    reason = "pending" if result.reason == "finished" and result.pending else result.reason
    return f"{reason or 'unfinished'}{f' ({one_line(detail)})' if detail else ''}"


def _call_counts(result: TurnResult) -> str:
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
    return ", ".join(f"{count:,} {unit}" for count, unit in parts if count is not None)


def _count(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}" if count else ""
