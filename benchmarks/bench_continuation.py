"""Measures the repeated and lost text when one model continues the answer of another.

    python benchmarks/bench_continuation.py

Every shipped recording is cut after each of its characters. Each beginning is continued by a server that accepts the
beginning of an answer, and by models that continue it in different ways when a prompt requests it. `repeated` and
`lost` are characters over all cuts. `clean` is the share of cuts after which the reader has the exact text. A preamble
stays, and counts as neither. A text that repeats its own last words cannot be distinguished from a model that repeats.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from streamtools import replay
from streamtools.conversation.failover_rules import Continuation
from streamtools.conversation.models.prefill_fields import Prefill
from streamtools.events import Text
from streamtools.recording import shipped

Way = Callable[[str, str], tuple[str, str]]
"""Makes, of what was shown and of the rest, the second answer and the rest that it means."""

PREAMBLE = "Sure, here is the rest: "


def last(count: int) -> Way:
    """Return a continuation that repeats this number of characters."""
    return lambda shown, rest: (shown[-count:] + rest, rest)


def means_it(count: int) -> Way:
    """Return a continuation whose correct text repeats its last characters."""
    return lambda shown, rest: (shown[-count:] + rest, shown[-count:] + rest)


WAYS: dict[str, tuple[Prefill | None, Way, bool]] = {
    "prefill": (Prefill(), lambda shown, rest: (shown[len(shown.rstrip()) :] + rest, rest), True),
    "prefill, repeated": (Prefill(echoes=True), lambda shown, rest: (shown + rest, rest), True),
    "continues immediately": (None, lambda shown, rest: (rest, rest), True),
    **{f"repeats the last {count}": (None, last(count), True) for count in (4, 8, 16, 32, 64, 128)},
    "starts again": (None, lambda shown, rest: (shown + rest, rest), True),
    "a preamble": (None, lambda shown, rest: (PREAMBLE + rest, rest), True),
    "a preamble, and repeats": (None, lambda shown, rest: (PREAMBLE + shown[-32:] + rest, rest), True),
    **{f"means to repeat {count}": (None, means_it(count), False) for count in (8, 32)},
}
"""For each: the prefill of the request (None for an instruction), the answer, and whether nothing may be lost."""


def go_on(prefill: Prefill | None, shown: str, answer: str) -> str:
    """Return the visible text of an answer."""
    continuation = Continuation(shown, prefill)
    pieces = [answer[at : at + 7] for at in range(0, len(answer), 7)]
    return "".join(map(continuation.feed, pieces)) + continuation.close()


def judge(new: str, rest: str) -> tuple[int, int]:
    """Return how many characters are repeated before the rest, or missing from it."""
    if new.endswith(rest):
        return len(new) - len(rest), 0
    same = next((count for count in range(len(rest), 0, -1) if new.endswith(rest[-count:])), 0)
    return len(new) - same, len(rest) - same


async def texts() -> dict[str, str]:
    """Return the visible text of each recording."""
    told = {name: await replay(path, speed=0) for name, path in shipped().items()}
    return {name: "".join(event.text for event in events if isinstance(event, Text)) for name, events in told.items()}


def main() -> None:
    """Print the table. The exit status tells whether text was lost."""
    whole = [text for text in asyncio.run(texts()).values() if len(text) > 1]
    step = 17 if "--smoke" in sys.argv else 1
    print(f"{len(whole)} recordings, {sum(map(len, whole))} characters")
    print(f"{'the second model':<26}{'cuts':>7}{'clean %':>9}{'repeated':>10}{'lost':>6}")
    wrong = 0
    for name, (prefill, way, strict) in WAYS.items():
        cuts = clean = repeated = lost = 0
        for text in whole:
            for cut in range(1, len(text), step):
                answer, rest = way(text[:cut], text[cut:])
                again, missing = judge(go_on(prefill, text[:cut], answer).removeprefix(PREAMBLE), rest)
                cuts, repeated, lost = cuts + 1, repeated + again, lost + missing
                clean += not (again or missing)
        print(f"{name:<26}{cuts:>7}{100 * clean / cuts:>9.1f}{repeated:>10}{lost:>6}")
        wrong += lost if strict else 0
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
