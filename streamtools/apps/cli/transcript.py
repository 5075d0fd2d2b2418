"""Shows a run as text for people while it runs.

The text of the answer is written when it arrives. Other events are written on separate lines with signs and colors: a
call at the position where the model wrote it, results of tools, warnings and errors.

A blank line separates two blocks of different kinds. An event always starts on a new line. After an added blank line,
up to two leading line feeds of the text are skipped, and after the line of an event, one. Otherwise, only control
characters of the text are changed.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, NoReturn, assert_never

from streamtools import events
from streamtools.apps.cli.printable import crop, one_line, printable
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.loading import require_packages
from streamtools.outputs.ui_texts import UiTexts
from streamtools.stream.result import TurnResult

with require_packages("this command (except replay --json)"):
    from rich.console import Console
    from rich.segment import Segment, Segments
    from rich.style import Style
    from rich.text import Text as Line

MAX_VALUE = 200
"""The maximum number of characters of a shown call or value. A longer call or value is shortened."""

_Block = Literal["heading", "text", "reasoning", "report", "summary"]
"""The kinds of blocks. A blank line separates two blocks of different kinds."""

_TEXTS = UiTexts()
_DIM_ITALIC = Style(dim=True, italic=True)
_MARKDOWN_ESCAPE = re.compile(r"\\([\\`*_{}\[\]<>()#+!|~])")  # "\*" stands for "*"


class Terminal(Console):
    """A rich console without markup. It raises the error of a broken pipe. By default, rich ends the process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def on_broken_pipe(self) -> NoReturn:
        """Raise the current OSError again."""
        raise


class Transcript:
    """Shows the events of runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._block: _Block | None = None
        self._line_feeds = 2  # number of line feeds at the end of the output; 2 prevents a blank line at the top
        self._added_line_feeds = 0  # number of added line feeds; the next text skips as many of its leading line feeds
        self._tool_names: dict[str, str] = {}  # the names of started tools, by call id
        self._near_misses: list[events.Warning] = []  # shown at the end of the step, not inside its text

    def show(self, event: events.UIEvent) -> None:
        """Write an event. Near-miss warnings are written at the end of the step. Some types of events are not shown."""
        match event:
            case events.Text(text):
                self._enter("text")
                self._write_model_text(printable(text))
            case events.Reasoning(text):
                if text and self._enter("reasoning"):
                    self._write_model_text("💭 ", _DIM_ITALIC)
                    self._added_line_feeds = 2
                self._write_model_text(printable(text), _DIM_ITALIC)
            case events.Thinking(active):
                if active:
                    self._notice("text", _text_of(event), "dim")
            case events.Call(call):
                if call.raw:
                    self._notice("text", f"  hidden from users: {crop(one_line(call.raw), MAX_VALUE)}", "dim")
                self._notice("text", f"→ {_format_call(call)}", "cyan")
            case events.Executing(call):
                self._tool_names[call.id] = one_line(call.name)
                self._notice("report", _text_of(event), "yellow")
            case events.Executed(_, result, message, elapsed):
                value = "" if message else f" → {_format_value(result)}"
                self._notice("report", f"{_text_of(event)}{value} ({format_duration(elapsed)})", "green")
            case events.Progress(call_id, data):
                name = self._tool_names.get(call_id, one_line(call_id))
                self._notice("report", f"   {name}: {_format_value(data)}", "dim")
            case events.ApprovalRequested(call):
                self._notice("report", f"✋ Approval requested: {_format_call(call)}", "yellow")
            case events.Error():
                is_malformed_call = event.call_id is not None and event.call is None
                self._notice("text" if is_malformed_call else "report", _format_error(event), "bold red")
            case events.Warning(code=Code.NEAR_MISS):
                self._near_misses.append(event)
            case events.Warning():
                self._warn("text", event)
            case events.StepEnd():
                for warning in self._near_misses:
                    self._warn("report", warning)
                self._near_misses.clear()
            case events.Done():
                self._tool_names.clear()
                if text := _text_of(event):
                    self._notice("report", text, "yellow")
            case events.StepSuperseded():
                self._notice("report", "↺ This answer is discarded. Another model starts again.", "yellow")
            case events.FollowUp():
                self._notice("report", "↩ The results are sent to the model.", "dim")
            case events.Matched(rule, action):
                self._notice("report", f"✂ {one_line(rule)}: {action}", "dim")
            case events.Start() | events.StepStart() | events.CallStart() | events.CallDelta() | events.UsageReport():
                pass
            case events.Markup() | events.Partial() | events.Raw():
                pass
            case _:
                assert_never(event)

    def _warn(self, block: _Block, warning: events.Warning) -> None:
        count = "" if warning.count is None else f" ({warning.count})"
        self._notice(block, f"⚠ {one_line(warning.message)}{count} ({warning.code})", "yellow")

    def summarize(self, result: TurnResult, seconds: float) -> None:
        """Write the summary of a run as its last line. `seconds` is the duration of the run."""
        self._enter("summary")
        self._write_line(Line.assemble(*summarize(result, seconds)))
        self._block = None

    def heading(self, title: str, question: str) -> None:
        """Write a title, and the question below it."""
        self._enter("heading")
        line = Line.assemble(("── ", "dim"), (one_line(title), "bold"), " ")
        line.append("─" * max(2, self._console.width - line.cell_len), "dim")
        self._write_line(line)
        self._write_line(Line(f"❯ {printable(question)}".replace("\n", "\n  "), "bold"))

    def remark(self, text: str) -> None:
        """Write a message of the command as a dim paragraph."""
        self._enter("heading")
        self._write_line(Line(one_line(text), "dim"))
        self._block = None

    # These methods begin blocks, and add line feeds between them.

    def _enter(self, block: _Block) -> bool:
        """Begin a block, with a blank line before it. Returns False if `block` is already the current block."""
        if block == self._block:
            return False
        if self._line_feeds < 2:
            self._put("\n" * (2 - self._line_feeds))
        self._added_line_feeds = 0 if self._block is None else 2
        self._block = block
        return True

    def _write_model_text(self, text: str, style: Style | None = None) -> None:
        """Write text of the model. Leading line feeds are skipped if line feeds were already added."""
        if self._added_line_feeds:
            rest = text.lstrip("\n")
            skipped = min(self._added_line_feeds, len(text) - len(rest))
            self._added_line_feeds = 0 if rest else self._added_line_feeds - skipped
            text = text[skipped:]
        self._put(text, style)

    def _notice(self, block: _Block, text: str, style: str) -> None:
        """Write a separate line in a block. In the block "text", it interrupts the text of the answer."""
        self._enter(block)
        if not self._line_feeds:
            self._put("\n")
        self._write_line(Line(text, style))
        self._added_line_feeds = 1

    # These methods write to the console.

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

    def _write_line(self, line: Line) -> None:
        self._console.print(line, soft_wrap=True)
        self._line_feeds = 1


def _text_of(event: events.UIEvent) -> str:
    """Return the sentence of `UiTexts` for an event, without Markdown emphasis and escapes."""
    text = _TEXTS.render(event) or ""
    if len(text) > 1 and text[0] == text[-1] == "*":
        text = text[1:-1]
    return one_line(_MARKDOWN_ESCAPE.sub(r"\1", text).replace("&lt;", "<"))


def _format_error(event: events.Error) -> str:
    text, message = _text_of(event), one_line(event.message)
    status = "" if event.status is None else f", status {event.status}"
    return f"{text if message in text else f'{text}: {message}'} ({event.code}{status})"


def _format_call(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={_format_value(value)}" for name, value in call.arguments.items())
    return crop(f"{one_line(call.name)}({one_line(arguments)})", MAX_VALUE)


def _format_value(value: Any) -> str:
    return crop(one_line(json.dumps(value, ensure_ascii=False)), MAX_VALUE)


# These functions format the summary of a run: how the run ended, its calls, its tokens, and its duration.

_SIGNS = {"finished": ("✔", "bold green"), "truncated": ("✂", "bold yellow"), "failed": ("✘", "bold red")}
_OTHER_SIGN = ("■", "bold yellow")


def summarize(result: TurnResult, seconds: float) -> list[tuple[str, str]]:
    """Return the parts of the summary line with their styles."""
    sign, style = _OTHER_SIGN if result.pending else _SIGNS.get(result.reason or "", _OTHER_SIGN)
    facts = [_format_calls(result), _format_tokens(result.usage), format_duration(seconds)]
    return [(f"{sign} {_format_ending(result)}", style), ("".join(f" · {fact}" for fact in facts if fact), "")]


def format_duration(seconds: float) -> str:
    """Format a duration in milliseconds, or in seconds if it rounds to 1000 ms or more.

    >>> format_duration(0.00042), format_duration(0.0123), format_duration(1.25)
    ('0.42 ms', '12 ms', '1.2 s')
    """
    if seconds < 0.01:
        return f"{seconds * 1000:.2f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 0.9995 else f"{seconds:.1f} s"


def _format_ending(result: TurnResult) -> str:
    detail = result.finish_reason
    if result.reason == "failed":
        detail = next((error.code for error in reversed(result.errors) if error.call_id is None), detail)
    reason = "pending" if result.reason == "finished" and result.pending else result.reason
    return f"{reason or 'unfinished'}{f' ({one_line(detail)})' if detail else ''}"


def _format_calls(result: TurnResult) -> str:
    """Return the number of calls, and how many of them had each outcome."""
    failed = sum(outcome.error is not None for outcome in result.outcomes)
    malformed = sum(error.call_id is not None and error.call is None for error in result.errors)
    counts = {
        "executed": len(result.outcomes) - failed,
        "failed": failed,
        "pending": len(result.pending),
        "malformed": malformed,
    }
    total = len(result.calls) + malformed
    details = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return f"{total or 'no'} call{'' if total == 1 else 's'}" + (details and f": {details}")


def _format_tokens(usage: events.Usage | None) -> str:
    counts = {} if usage is None else {"in": usage.input, "out": usage.output}
    return ", ".join(f"{count:,} tokens {way}" for way, count in counts.items() if count is not None)
