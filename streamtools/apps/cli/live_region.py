"""The last lines of a terminal, which may change yet; what stands above them is written once, and for good."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment, Segments

_STYLING = re.compile(r"\x1b\[[0-9;]*m")
_UP, _ERASE_LINE, _ERASE_BELOW = "\x1b[{}A", "\x1b[K", "\x1b[J"
_CUT_OFF = "\x1b[?7l{}\x1b[?7h"
"""A line that does not go on in the next row, should it be too long."""
_JOINER = "\u200d"
"""Joins pictures, each of which many terminals show beside the next: as wide as four of what the line was made for."""


def styled_lines(console: Console, shown: RenderableType, width: int) -> list[str]:
    """Return the lines of something, with the codes of their styles, and without spaces at their ends."""
    rows: list[list[Segment]] = []
    for row in console.render_lines(shown, console.options.update(width=max(width, 1), height=None), pad=False):
        while row and not row[-1].text.rstrip():
            row.pop()
        if row:
            row[-1] = Segment(row[-1].text.rstrip(), row[-1].style)
        rows.append(row)
    with console.capture() as captured:
        for row in rows:
            console.print(Segments([*row, Segment.line()]), end="", soft_wrap=True)
    return captured.get().split("\n")[:-1]


def _goes_on(line: str, longer: str) -> bool:
    """Return whether a line is the other one's beginning, and no character of it becomes another by what follows."""
    return longer.startswith(line) and _JOINER not in line and (line[-1:] + longer[len(line) : len(line) + 1]).isascii()


class LiveRegion:
    """Writes lines above, and keeps those below up to date. The cursor stands behind the last of them.

    Nothing is erased before it is written anew, and a line that stays is not touched: so nothing flickers. All lines
    have to be narrower than the terminal, and those that may change fewer than it has rows.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: list[str] = []

    def paint(self, finished: Sequence[str], live: Sequence[str]) -> None:
        """Write `finished` for good where the region stands, and `live` below."""
        before, after, self._shown = self._shown, [*finished, *live], list(live)
        if not finished and before == self._shown:
            return
        same = 0
        for was, line in zip(before, after, strict=False):
            if was != line or (_JOINER in line and same < len(finished)):  # which was cut off until now
                break
            same += 1
        if live and same == len(after):  # those below go, and the cursor is wanted behind this one
            same -= 1
        gone, come = before[same:], after[same:]
        rows = sum(map(self._rows, gone))
        out = ""
        if rows == 1 and come and _goes_on(gone[0], come[0]):
            come[0] = come[0][len(gone[0]) :]
        elif rows:
            out = (_UP.format(rows - 1) if rows > 1 else "") + "\r"
        elif before and come:
            out = "\n"
        for at, line in enumerate(come):
            if _JOINER in line:
                come[at] = _CUT_OFF.format(line) if same + at >= len(finished) else _ERASE_BELOW + line
        out += "\n".join(line + _ERASE_LINE for line in come)
        if not live and (come or (before and not gone)):
            out += "\n"
        if rows > len(come):
            out += _ERASE_BELOW
        self._console.file.write(out)
        self._console.file.flush()

    def _rows(self, line: str) -> int:
        """Return how many rows a line takes: more than one where the terminal has been made narrower since."""
        return max(1, -(-cell_len(_STYLING.sub("", line)) // self._console.width))
