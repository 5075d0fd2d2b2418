"""The one-line summary of a run: its ending, its calls and their outcomes, warnings, tokens, and duration."""

from __future__ import annotations

from streamtools import events
from streamtools.apps.cli.printable import one_line
from streamtools.stream.result import TurnResult

_SIGNS = {"finished": ("✔", "bold green"), "truncated": ("✂", "bold yellow"), "failed": ("✘", "bold red")}
_OTHER_SIGN = ("■", "bold yellow")


def summarize(result: TurnResult, seconds: float, *, raw_events: int = 0) -> list[tuple[str, str]]:
    """Return the parts of the line with their styles. `raw_events` counts provider events that were not understood."""
    sign, style = _OTHER_SIGN if result.pending else _SIGNS.get(result.reason or "", _OTHER_SIGN)
    malformed = sum(error.call_id is not None and error.call is None for error in result.errors)
    facts = [
        "" if malformed and not result.calls else _calls(result),
        _count(malformed, "malformed call"),
        _count(len(result.warnings), "warning"),
        _count(raw_events, "event that was not understood", "events that were not understood"),
        _count(len(result.steps) if len(result.steps) > 1 else 0, "step"),
        _tokens(result.usage),
        format_duration(seconds),
    ]
    return [(f"{sign} {_ending(result)}", style), ("".join(f" · {fact}" for fact in facts if fact), "")]


def format_duration(seconds: float) -> str:
    """Return a duration with its unit, in two or three digits.

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
    return ", ".join(f"{count:,} {unit}" for count, unit in parts if count is not None)


def _count(count: int, singular: str, plural: str | None = None) -> str:
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}" if count else ""
