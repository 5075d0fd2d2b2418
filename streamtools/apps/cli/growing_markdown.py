"""Markdown for a terminal while it is written: the blocks that are finished, and the one that still grows.

Each block is drawn on its own, and each item of a list, and no more than a screen of text is ever drawn anew: so the
cost of a piece does not grow with the answer. What does not fit on the screen is cut, and its first part is finished.
No character of the text is lost: HTML, images and definitions of links are text, and a link shows its address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich import markdown as rich_markdown
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment, Segments
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from streamtools.apps.cli.complaints import printable

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["reference", "image"])
_UNDECIDED = re.compile(r"[ \t>]*+(?:[-=+*_#`~|:\s]*+|\d{1,9}+[.)]?+\s*+|`{3,}+[^`]*+)")
"""An unfinished line which may be text or the beginning of something else: it is not shown yet."""

_LONGEST = 8_000
"""Characters of a block that is drawn anew with each piece; behind them it is cut, also where the screen is larger."""


@dataclass(frozen=True)
class _Place:
    gap: bool = False  # a blank line is above it
    number: int | None = None  # of an item: its list goes on, from this one
    opened: bool = False  # a fence: what opens it has been shown


class GrowingMarkdown:
    """Takes text, and returns lines."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._source = ""  # of the block that grows
        self._place = _Place()
        self._drawing = _Drawing("", code_theme="ansi_dark", hyperlinks=False)

    def feed(self, text: str) -> None:
        """Take text, whose control characters are pictures already."""
        self._source += text

    def lines(self, height: int, *, final: bool = False) -> tuple[list[str], list[str]]:
        """Return the lines that are finished since the last time, and those that may change: at most `height`."""
        if not self._place.gap:
            self._source = self._source.lstrip("\n")
        shown = self._source
        start = shown.rfind("\n") + 1
        if not final and _UNDECIDED.fullmatch(shown, start):
            shown = shown[:start]
        finished: list[str] = []
        *blocks, (shown, place) = _blocks(shown, self._place)
        for block, its_place in blocks:
            finished += self._draw(block, its_place)
            self._source = self._source[len(block) :]
        if final:
            finished += self._draw(shown, place)
            self._source, self._place = "", _Place()
            return finished, []
        while True:
            live = [] if len(shown) > _LONGEST else self._draw(shown, place)
            if live and len(live) <= height:
                break
            cut = _where_to_cut(shown)
            at = cut.at
            while cut.at_words and live and at and len(self._draw(shown[:at], place)) >= len(live):
                at = max(shown.rfind(" ", 0, at - 1), shown.rfind("\n", 0, at - 1)) + 1  # a row that ends here is full
            if not (at := at or cut.at):
                break
            finished += self._draw(shown[:at], place, cut=True)
            self._source, shown, place = cut.opener + self._source[at:], cut.opener + shown[at:], cut.place
        self._place = place
        return finished, live[-height:]

    def _draw(self, source: str, place: _Place, *, cut: bool = False) -> list[str]:
        if not source.strip():
            return []
        tokens = _PARSER.parse(source)
        for token in tokens:
            if token.type == "inline":
                token.children = list(_plain(token.children or []))
            elif token.type in ("fence", "code_block"):
                token.content = printable(token.content)
            if token.type == "fence" and token.level == 0:
                token.meta = {"opened": place.opened, "open": cut or not _is_closed(token, source)}
        if place.number is not None and tokens[0].type == "ordered_list_open":
            tokens[0].attrs["start"] = place.number
        self._drawing.parsed = tokens
        lines = styled_lines(self._console, self._drawing, self._console.width - 1)
        start = next((number for number, line in enumerate(lines) if line), 0)
        while lines and not lines[-1]:
            lines.pop()
        return [""] * place.gap + lines[start:]  # rich leaves blank lines around some


def _lines(source: str) -> list[str]:
    *lines, last = source.split("\n")
    return [f"{line}\n" for line in lines] + [last] * (last != "")


def _blocks(source: str, place: _Place) -> list[tuple[str, _Place]]:
    """Divide text into its blocks, and lists into their items, none of which but the last can change any more."""
    lines = _lines(source)
    begun: list[tuple[int, _Place]] = []
    number: int | None = None  # of the next item
    for token in _PARSER.parse(source):
        if token.map is None or token.nesting < 0 or token.level > 1:
            continue
        line = token.map[0]
        if token.level == 0:
            first = place if not begun else _Place(gap=True)
            ordered = token.type == "ordered_list_open"
            number = (first.number or int(token.attrs.get("start", 1))) if ordered else None
            begun.append((line, replace(first, number=number)))
        elif token.type == "list_item_open" and line > begun[-1][0]:
            number = None if number is None else number + 1
            begun.append((line, _Place(gap=not lines[line - 1].strip(), number=number)))
    if not begun:
        return [(source, place)]
    starts = [0, *(line for line, _ in begun[1:]), len(lines)]
    return [
        ("".join(lines[start:end]), its_place)
        for start, end, (_, its_place) in zip(starts, starts[1:], begun, strict=False)
    ]


class _Cut(NamedTuple):
    """Where the first part of a block ends, 0 for nowhere, and how the rest begins."""

    at: int
    at_words: bool  # it may also end at any word before that
    opener: str  # the lines that a fence or a table begins with, if they are short enough to be repeated
    place: _Place


def _where_to_cut(source: str) -> _Cut:
    beginning = source[:_LONGEST]
    tokens = _PARSER.parse(beginning)
    kind = tokens[0].type if tokens else ""
    opener = "".join(_lines(source)[: {"fence": 1, "table_open": 2}.get(kind, 0)])
    opener = opener if len(opener) < _LONGEST // 4 else ""
    at = 0  # a row of a table can make all of them wider, and what stands in an item has its indentation
    if len(source) > _LONGEST:
        line = source.rfind("\n", 0, _LONGEST) + 1
        at = line if line > len(opener) else _LONGEST
    elif kind == "fence" and not _is_closed(tokens[0], beginning):
        line = source.rfind("\n") + 1
        at = line if line > len(opener) else 0
    elif kind == "paragraph_open":
        at = max(source.rfind(" ", 0, -1), source.rfind("\n", 0, -1)) + 1
    elif kind in ("blockquote_open", "code_block"):
        at = source.rfind("\n", 0, -1) + 1
    is_short = len(source) <= _LONGEST
    return _Cut(at, kind == "paragraph_open" and is_short, opener, _Place(opened=kind == "fence"))


def _is_closed(fence: Token, source: str) -> bool:
    start, end = fence.map or (0, 0)
    last = _lines(source)[end - 1].strip()
    return end - start > 1 and last.startswith(fence.markup) and not last.strip(fence.markup[0])


def _plain(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield what stands in a line: line feeds as they are, no control characters of entities, and addresses once."""
    twice = False
    for index, token in enumerate(tokens):
        token.content = printable(token.content)
        if token.type == "softbreak":
            token.type = "hardbreak"
        elif token.type == "link_open":
            address = str(token.attrs.get("href", ""))
            token.attrs["href"] = printable(address)
            twice = tokens[index + 1].content == address
            if twice:
                continue
        elif token.type == "link_close" and twice:
            continue
        yield token


# How rich draws it, where ours differs.


class _Heading(rich_markdown.Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.stylize({"h1": "bold underline", "h2": "bold"}.get(self.tag, "bold italic"))
        yield text


class _CodeBlock(rich_markdown.CodeBlock):
    """Code between its fences, which divide it from text where there is no colour."""

    opened = open = False
    fence = language = ""

    @classmethod
    def create(cls, markdown: rich_markdown.Markdown, token: Token) -> _CodeBlock:
        block = cls(token.info.partition(" ")[0] or "text", markdown.code_theme)
        if token.type == "fence":
            block.fence, block.language = token.markup, printable(token.info).strip()
            block.opened, block.open = token.meta.get("opened", False), token.meta.get("open", False)
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.fence and not self.opened:
            yield Text(f"{self.fence}{self.language}", "dim")
        if code := self.text.plain.removesuffix("\n"):
            yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")
        if self.fence and not self.open:
            yield Text(self.fence, "dim")


class _Rule(rich_markdown.HorizontalRule):
    new_line = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * options.max_width, "dim")


class _ListItem(rich_markdown.ListItem):
    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        """Draw the item as if it was alone: a longer number below does not move it."""
        sign = f" {number}. "
        lines = console.render_lines(self.elements, options.update(width=max(1, options.max_width - len(sign))))
        for index, line in enumerate(lines):
            yield Segment(" " * len(sign) if index else sign)
            yield from line
            yield Segment.line()


class _Table(rich_markdown.TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, border_style="dim")
        for cell in self.header.row.cells if self.header and self.header.row else ():
            table.add_column(cell.content, overflow="fold", header_style="bold", justify=cell.content.justify or "left")
        for row in self.body.rows if self.body else ():
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class _Drawing(rich_markdown.Markdown):
    elements: ClassVar[dict[str, type[rich_markdown.MarkdownElement]]] = {
        **rich_markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "hr": _Rule,
        "list_item_open": _ListItem,
        "table_open": _Table,
    }


# The last lines of a terminal, which may change yet; what stands above them is written once, and for good.

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
        # A line takes more than one row where the terminal has been made narrower since.
        rows = sum(max(1, -(-cell_len(_STYLING.sub("", line)) // self._console.width)) for line in gone)
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
