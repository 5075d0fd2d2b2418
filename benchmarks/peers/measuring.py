"""The measurements: first times, in turns, then results without a clock.

Repeats go round: each round asks every row once, so that a busy moment hits all of them. A row that has taken three
seconds of a case is not asked for it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import log
from statistics import median
from typing import Any

from benchmarks import texts
from benchmarks.peers.crew import Crew, Missing
from benchmarks.peers.formats import FORMATS
from benchmarks.peers.judging import Verdict, judge, promptness
from benchmarks.peers.rows import Row
from benchmarks.peers.short import LARGE, cuttings, short_streams
from benchmarks.peers.streams import TOOLS, Stream, case

ENOUGH = 3.0  # seconds that a row may take of one case before it is not repeated
JUDGED = 15.0  # maximum seconds of a case that is run a second time, to judge it

PROMPT = ("prose_10k", "near_40K", "arg_1K")
"""The cases in which promptness is measured."""

Cell = dict[str, Any]
"""What is known of one row and one case, ready for JSON."""


def available(crew: Crew, rows: Sequence[Row]) -> tuple[list[Row], dict[str, str]]:
    """Return the rows that can run, and the reasons why the others cannot."""
    running, missing = [], {}
    for row in rows:
        try:
            crew.start(row)
            running.append(row)
        except Missing as error:
            missing[row.name] = str(error)
    return running, missing


def measure(crew: Crew, rows: Sequence[Row], name: str, repeats: int, limit: float, small: bool) -> dict[str, Cell]:
    """Return the cells of one case, by row."""
    streams = {key_of(row): stream for row in rows if (stream := case(name, FORMATS[row.format], small=small))}
    running = [row for row in rows if key_of(row) in streams]
    sizes = {key: [len(delta) for delta in texts.cut_unevenly(stream.text)] for key, stream in streams.items()}
    times: dict[str, list[float]] = {key: [] for key in streams}
    cells: dict[str, Cell] = {key: {"deltas": len(sizes[key])} for key in streams}
    for _ in range(repeats):
        for row in running:
            key = key_of(row)
            if "dnf" in cells[key] or sum(times[key]) > ENOUGH:
                continue
            request = {"op": "time", "text": streams[key].text, "sizes": sizes[key], "limit": limit, "once": small}
            request["tools"] = TOOLS
            reply = crew.ask(row, request, limit + 15)
            if "seconds" in reply:
                times[key].append(reply["seconds"])
            else:
                cells[key]["dnf"] = reply.get("dnf") or reply["raised"].strip().splitlines()[-1]
    for row in running:
        key = key_of(row)
        if times[key] and "dnf" not in cells[key]:
            seconds = median(times[key])
            cells[key] |= {"seconds": seconds, "spread": (max(times[key]) - min(times[key])) / seconds}
            if seconds <= JUDGED and row.group != "floor":
                cells[key] |= _looked_at(crew, row, streams[key], sizes[key], limit)
    return cells


def _looked_at(crew: Crew, row: Row, stream: Stream, sizes: list[int], limit: float) -> Cell:
    pace = 4 if stream.name == "arg_1K" else 0  # milliseconds, on Node, where progress waits for a timer
    request = {"op": "tell", "text": stream.text, "cuts": [sizes], "tools": TOOLS, "pace": pace}
    told = crew.ask(row, request, limit + 15).get("told", ["no answer"])[0]
    if isinstance(told, str):
        return {"raised": told}
    verdict = judge(stream, told, tells_text=row.tells_text)
    if stream.name not in PROMPT:
        return {"verdict": _figures(verdict)}
    soon = promptness(stream, sizes, told, row.markers or (stream.format.marker,))
    return {"verdict": _figures(verdict), "soon": asdict(soon) | ({} if row.tells_text else {"held": None})}


def _figures(verdict: Verdict) -> dict[str, int]:
    return {name: getattr(verdict, name) for name in ("lost", "leaked", "wrong", "calls")}


def cut_in_many_ways(crew: Crew, row: Row, limit: float, *, small: bool = False) -> list[dict[str, Any]]:
    """Return the results of each short stream of the row's format at all cuts."""
    return [_cut(crew, row, stream, limit, small) for stream in short_streams(FORMATS[row.format])]


def _cut(crew: Crew, row: Row, stream: Stream, limit: float, small: bool) -> dict[str, Any]:
    ways = list(cuttings(stream))[: 6 if small else None]
    request = {"op": "tell", "text": stream.text, "cuts": [sizes for _, sizes in ways], "tools": TOOLS}
    told = crew.ask(row, request, limit).get("told", ["no answer"] * len(ways))
    verdicts = [None if isinstance(each, str) else judge(stream, each, tells_text=row.tells_text) for each in told]
    large = [name.startswith(LARGE) for name, _ in ways]
    return {
        "stream": stream.name,
        "calls": len(stream.calls),
        "tokens": _sum_up(verdicts[:1]),
        "small": _sum_up([verdict for verdict, is_large in zip(verdicts, large, strict=True) if not is_large]),
        "large": _sum_up([verdict for verdict, is_large in zip(verdicts, large, strict=True) if is_large]),
        "results": len({verdict and verdict.result for verdict in verdicts}),
    }


def _sum_up(verdicts: Sequence[Verdict | None]) -> dict[str, int]:
    """Return the number of cuts, the number of faulty results, and the worst result of each kind."""
    judged = [verdict for verdict in verdicts if verdict is not None]
    return {
        "cuttings": len(verdicts),
        "raised": len(verdicts) - len(judged),
        "faulty": sum(verdict is None or not verdict.right for verdict in verdicts),
        "lost": max((verdict.lost for verdict in judged), default=0),
        "leaked": max((verdict.leaked for verdict in judged), default=0),
        "wrong": max((verdict.wrong for verdict in judged), default=0),
    }


def key_of(row: Row) -> str:
    """Return the key of a row. A parser may read two formats."""
    return f"{row.name} [{row.format}]"


def exponent(cells: dict[str, dict[str, Cell]], key: str, small: str, large: str) -> float | str | None:
    """Return how the time of a row grows from one case to another, `DNF` if the other did not end, None if unknown."""
    one, other = (cells.get(name, {}).get(key, {}) for name in (small, large))
    if "seconds" not in one or one["deltas"] == other.get("deltas"):
        return None
    if "seconds" not in other:
        return "DNF" if "dnf" in other else None
    return log(other["seconds"] / one["seconds"]) / log(other["deltas"] / one["deltas"])
