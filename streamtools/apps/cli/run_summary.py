"""A run in one line: how it ended, its calls and what became of them, warnings, tokens, time."""

from __future__ import annotations

from streamtools import events
from streamtools.apps.cli.complaints import one_line
from streamtools.stream.result import TurnResult

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
