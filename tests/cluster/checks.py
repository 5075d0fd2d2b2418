"""Checks a history. Each check yields the broken promises, whatever the faults were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from streamtools.errors import Code, EventOrderError
from streamtools.events import Done, Error, Executed, Text, Warning
from streamtools.outputs import validate
from tests.cluster.episode import LEASE, Fault, History

_SLACK = 2.0  # seconds after a fault, in addition to a lease, in which its effects may appear


def check(history: History) -> list[str]:
    """Return all broken promises."""
    return [f"{name}: {each}" for name, rule in CHECKS.items() for each in rule(history)]


def _readers(history: History) -> Iterator[str]:
    """Each reader gets all events of a run once and in order. After a resync, it gets all events again."""
    for reading in history.readings:
        told = history.told.get(reading.run, [])
        resyncs = [
            at for at, event in enumerate(reading.events) if isinstance(event, Warning) and event.code == "resync"
        ]
        if len(resyncs) > (1 if history.everysec else 0):
            yield f"{reading.run}: {len(resyncs)} resyncs"
            continue
        seen = reading.events[resyncs[0] + 1 :] if resyncs else reading.events
        numbers = [event.seq for event in seen]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{reading.run}: a reader saw {numbers}"
        elif seen != told[: len(seen)]:
            at = next(at for at, (a, b) in enumerate(zip([*seen, None], [*told, None], strict=False)) if a != b)
            yield f"{reading.run}: a reader saw {seen[at : at + 1]} where {told[at : at + 1]} is written"


def _ends(history: History) -> Iterator[str]:
    """Each run has one end, which all of its readers reach, and its events are in order."""
    for run in history.started:
        told = history.told.get(run, [])
        try:
            validate(told)
        except EventOrderError as error:
            yield f"{run}: {error}"
    for reading in history.readings:
        if not reading.is_over:
            last = reading.events[-1:] and reading.events[-1]
            yield f"{reading.run}: a reader waits forever after {last}, in connection {reading.connections}"
    for run in history.plans.keys() - history.started.keys():
        yield f"{run}: it could not be started"


def _effects(history: History) -> Iterator[str]:
    """A tool runs at most once. It runs once if the log has its result, and never if its call is pending."""
    done = Counter(history.effects)
    for run, count in done.items():
        if count > 1:
            yield f"{run}: its tool ran {count} times"
    for run, told in history.told.items():
        if any(isinstance(event, Executed) for event in told) and not done[run]:
            yield f"{run}: the log has the result of a tool that did not run"
        if isinstance(told[-1:] and told[-1], Done) and told[-1].pending and done[run]:  # type: ignore[union-attr]
            yield f"{run}: a pending call did run"


def _faults(history: History) -> Iterator[str]:
    """Unknown outcomes and failures have a fault at that time as their cause."""
    for run, told in history.told.items():
        for event in told:
            if not isinstance(event, Error) or event.code not in (Code.OUTCOME_UNKNOWN, Code.STREAM_INTERRUPTED):
                continue
            if not any(fault.over > history.started[run] - _SLACK - LEASE for fault in _all_faults(history)):
                yield f"{run}: {event.code} without a fault"


def _texts(history: History) -> Iterator[str]:
    """A run that was continued has the whole text, each character once. Only a stop ends it before."""
    stopped = {asked.run for asked in history.asked if asked.kind == "stop"}
    for run, told in history.told.items():
        plan, done = history.plans[run], told[-1] if told else None
        if not isinstance(done, Done):
            continue
        text = "".join(event.text for event in told if isinstance(event, Text))
        if done.reason == "finished" and text != plan.text:
            yield f"{run}: its text is {text!r}, expected {plan.text!r}"
        if plan.recovers and done.reason != "finished" and run not in stopped:
            yield f"{run}: it was not continued, but ended as {done.reason}"


def _asked(history: History) -> Iterator[str]:
    """Acknowledged requests have taken effect. A request that did not arrive has a fault as its cause."""
    for asked in history.asked:
        told = history.told.get(asked.run, [])
        if asked.answer == "ok" and asked.kind == "stop" and not isinstance(told[-1:] and told[-1], Done):
            yield f"{asked.run}: a stop was acknowledged, but the run continues"
        if asked.answer == "ok" and asked.kind == "approve" and not _was_begun(history, asked.run):
            yield f"{asked.run}: an approval was acknowledged without effect"
        if asked.answer.startswith("other"):
            yield f"{asked.run}: {asked.kind} raised {asked.answer}"
        if asked.answer.startswith("OwnerUnreachable"):
            two = {None, asked.worker, *history.starters.get(asked.run, ())}
            faults = [f for f in _all_faults(history) if f.worker in two and f.begun < asked.over]
            has_fault = any(f.over > asked.begun - 1.0 - LEASE for f in faults)
            if _waited(history, asked.begun, asked.over) < LEASE / 2 and not has_fault:
                yield f"{asked.run}: {asked.kind} did not reach the driving process, without a fault ({asked.answer})"


def _waited(history: History, begun: float, over: float) -> float:
    """Return the seconds in this time in which the scheduler delayed a process."""
    waited, at = 0.0, begun
    for wait in sorted(history.waits, key=lambda each: each.begun):
        waited += max(0.0, min(wait.over, over) - max(wait.begun, at))
        at = max(at, wait.over)
    return waited


def _was_begun(history: History, run: str) -> bool:
    told = history.told.get(run, [])
    is_cut = isinstance(told[-1:] and told[-1], Done) and told[-1].reason in ("failed", "cancelled")  # type: ignore[union-attr]
    return is_cut or any(event.type == "executing" for event in told)


def _orphans(history: History) -> Iterator[str]:
    """All remaining keys expire."""
    return (f"{key} stays" for key in history.left)


def _all_faults(history: History) -> list[Fault]:
    return [*history.faults, *history.slow]


CHECKS: dict[str, Callable[[History], Iterable[str]]] = {
    "readers": _readers,
    "ends": _ends,
    "effects": _effects,
    "faults": _faults,
    "texts": _texts,
    "asked": _asked,
    "orphans": _orphans,
}
"""The checks by name."""
