"""A terminal screen that obeys the few escape sequences that the transcript writes, and rejects all others."""

from __future__ import annotations

import re

from rich.cells import cell_len

_PIECE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|[\s\S]")


class Screen:
    """A screen of `width` columns and `height` rows. `rows` also has the rows that are scrolled away."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._cells: list[list[str]] = [[]]
        self._row = self._column = 0

    @property
    def rows(self) -> list[str]:
        """The text of each row."""
        return ["".join(row) for row in self._cells]

    def feed(self, written: str) -> None:
        for piece in _PIECE.finditer(written.replace("\r\n", "\n")):
            self._obey(piece[0], piece[1], piece[2])

    def _obey(self, text: str, count: str | None, code: str | None) -> None:
        match code:
            case "A":
                self._row -= int(count or 1)
                assert self._row >= max(0, len(self._cells) - self._height), "the cursor leaves the screen"
            case "K":
                assert count == "2", "rich erases whole lines"
                self._cells[self._row] = []
            case "m":
                pass
            case "h" | "l":
                assert "?25" == count, "rich hides and shows the cursor"
            case None if text == "\n":
                self._row, self._column = self._row + 1, 0
                if self._row == len(self._cells):
                    self._cells.append([])
            case None if text == "\r":
                self._column = 0
            case None if text in "\t\u200d" or text.isprintable():  # the second joins two pictures
                self._write(text)
            case _:
                raise AssertionError(f"{text!r} is not for this terminal")

    def _write(self, character: str) -> None:
        width = 1 if character == "\t" else cell_len(character)
        row = self._cells[self._row]
        if not width and self._column:
            before = max(column for column in range(self._column) if row[column])
            row[before] += character
            return
        if self._column + width > self._width:
            self._obey("\n", None, None)
            row = self._cells[self._row]
        row[self._column : self._column + width] = [character, *[""] * (width - 1)]
        self._column += width
