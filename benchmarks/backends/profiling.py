"""Shows the cost of a frame as Markdown tables."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

Counted: TypeAlias = dict[str, dict[str, float]]
"""Instructions and calls by `package file function`, and system calls, as `counting.Counts` has them."""

_COLUMNS = {
    "streamtools": "streamtools",
    "starlette": "server",
    "uvicorn": "server",
    "h11": "h11",
    "httpx": "HTTP client",
    "httpcore": "HTTP client",
    "anyio": "anyio",
    "sniffio": "anyio",
    "asyncio": "asyncio",
}
_REST = "others"


def between(fewer: Counted, more: Counted, *, frames: int) -> Counted:
    """Return the cost of one frame, from the difference of two counts."""
    return {
        kind: {name: (value - fewer[kind].get(name, 0)) / frames for name, value in found.items()}
        for kind, found in more.items()
    }


def show(counted: dict[str, Counted], *, most: int = 25) -> None:
    """Print a table by library, and the most expensive functions of streamtools for each row."""
    names = [*dict.fromkeys(_COLUMNS.values()), _REST]
    print(f"| backend | instructions | × bare | {' | '.join(names)} | system calls |")
    print(f"| --- |{' ---: |' * (len(names) + 3)}")
    bare = sum(next(iter(counted.values()))["instructions"].values())
    for row, found in counted.items():
        shares: Counter[str] = Counter()
        for name, value in found["instructions"].items():
            shares[_COLUMNS.get(name.partition(" ")[0], _REST)] += value  # type: ignore[assignment]
        whole = sum(shares.values())
        cells = " | ".join(f"{shares[name]:,.0f}" for name in names)
        print(f"| {row} | {whole:,.0f} | {whole / bare:.2f} | {cells} | {sum(found['system'].values()):.1f} |")
    for row, found in counted.items():
        ours = {name: value for name, value in found["instructions"].items() if name.startswith("streamtools ")}
        if ours:
            print(f"\n{row}: instructions and calls of a frame, of {sum(ours.values()):.0f}")
        for name, value in sorted(ours.items(), key=lambda each: -each[1])[:most]:
            if value >= 1:
                print(f"{value:8.1f} {found['calls'][name]:7.2f}  {name.partition(' ')[2]}")
