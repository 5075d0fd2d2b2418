"""A process with one parser, so that no parser pays for the imports and garbage of another.

It reads the paths of requests, one a line, and answers each with a line of JSON. `time` gives the seconds of processor
time that one stream takes, or tells why it gave up; `tell` feeds a stream, cut in one or several ways, and returns what
the parser said. Started as `python -m benchmarks.peers.worker KIND CHOICE PARTS`.
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
from importlib import import_module
from inspect import signature
from math import log2
from pathlib import Path
from signal import ITIMER_PROF, setitimer
from time import thread_time  # that of the process is counted in ticks while a timer of the process runs
from typing import Any

from benchmarks.peers.adapting import Peer
from benchmarks.peers.streams import deltas_of

_FIRST_LOOK = 512  # deltas; then at each doubling
PATIENCE = 2.0  # seconds that a stream may take before it is asked whether it will end in time
_SHORTEST = 0.01  # seconds of one measurement: what is shorter is repeated


def load(kind: str, choice: str, parts: Path) -> Peer:
    """Return the parser of a row. Raises ImportError if it is not installed."""
    module = import_module(f"benchmarks.peers.{kind}")
    wants_parts = "parts" in signature(module.load).parameters
    peer: Peer = module.load(choice, parts) if wants_parts else module.load(choice)
    return peer


def time_stream(peer: Peer, deltas: list[str], limit: float, *, once: bool) -> dict[str, Any]:
    """Return the average seconds for one stream, or `dnf`."""
    if once:
        return _live(peer, deltas, limit)
    feed, _ = peer.make()
    for delta in deltas[:500]:  # the first time is slower
        feed(delta)
    gc.collect()
    first = _live(peer, deltas, limit)
    if "dnf" in first or first["seconds"] >= _SHORTEST:
        return first
    count = min(1000, round(_SHORTEST / max(first["seconds"], 1e-6)) + 1)
    gc.collect()
    return {"seconds": sum(_live(peer, deltas, limit)["seconds"] for _ in range(count)) / count}


def _live(peer: Peer, deltas: list[str], limit: float) -> dict[str, Any]:
    looks = [_FIRST_LOOK << step for step in range(40) if _FIRST_LOOK << step < len(deltas)]
    parts = [deltas[begin:end] for begin, end in zip([0, *looks], [*looks, len(deltas)], strict=True)]
    feed, finish = peer.make()
    seconds: list[float] = []
    started = thread_time()
    for end, part in zip([*looks, len(deltas)], parts, strict=True):
        for delta in part:
            feed(delta)
        seconds.append(thread_time() - started)
        if seconds[-1] > PATIENCE and end < len(deltas):
            exponent = log2(seconds[-1] / max(seconds[-2], 1e-9)) if len(seconds) > 1 else 1.0
            projected = seconds[-1] * (len(deltas) / end) ** max(1.0, exponent)
            if projected > limit:
                return {"dnf": f"{projected:.0f} s by n^{exponent:.1f} at {end}/{len(deltas)}"}
    finish()
    return {"seconds": thread_time() - started}


def tell(peer: Peer, deltas: list[str]) -> list[list[Any]]:
    """Return the parser's results for a stream, each with the number of the delta."""
    feed, finish = peer.make()
    told = [[number, *each] for number, delta in enumerate(deltas) for each in peer.read(feed(delta))]
    return told + [[len(deltas), *each] for output in finish() for each in peer.read(output)]


def answer(peer: Peer, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request. An exception of the parser is an answer too."""
    text = request["text"]
    if request["op"] == "time":
        return time_stream(peer, deltas_of(text, request["sizes"]), request["limit"], once=request["once"])
    answers: list[Any] = []
    for sizes in request["cuts"]:
        try:
            answers.append(tell(peer, deltas_of(text, sizes)))
        except Exception as error:
            answers.append(f"{type(error).__name__}: {error}"[:200])
    return {"told": answers}


def main() -> None:
    kind, choice, parts = sys.argv[1:4]
    replies, sys.stdout = sys.stdout, sys.stderr  # what a parser prints is not an answer
    try:
        peer = load(kind, choice, Path(parts))
    except (ImportError, OSError) as error:
        print(json.dumps({"missing": str(error)}), file=replies, flush=True)
        return
    print(json.dumps({"version": peer.version}), file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(Path(json.loads(line)).read_text(encoding="utf-8"))
        setitimer(ITIMER_PROF, request["patience"])  # processor time; then the process ends, wherever it is
        try:
            reply = answer(peer, request)
        except Exception:
            reply = {"raised": traceback.format_exc()[-500:]}
        setitimer(ITIMER_PROF, 0)
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
