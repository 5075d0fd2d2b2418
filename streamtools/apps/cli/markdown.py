"""Markdown for a terminal, rendered with rich while it grows.

`MarkdownStream` splits the text into finished blocks, which are printed once, and the last block, which can still
change. No character of the text is lost: HTML, images and link definitions are shown as text, and links show their
addresses.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import markdown as rich_markdown
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from streamtools.apps.cli.printable import printable

_PARSER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["reference", "image"])
_UNDECIDED_LINE = re.compile(r"[ \t>]*+(?:[-=+*_#`~|:\s]*+|\d{1,9}+[.)]?+\s*+|`{3,}+[^`]*+)")
"""An unfinished line that may become a list, a rule or a fence. It is not shown yet."""


class MarkdownStream:
    """Takes text, whose control characters must be printable symbols."""

    def __init__(self) -> None:
        self._text = ""  # the blocks that are not finished
        self._is_first = True

    def feed(self, text: str) -> None:
        self._text = (self._text + text).lstrip("\n")

    def take_finished(self) -> RenderedMarkdown | None:
        """Return the blocks that no further text can change, and forget them. None if there are none."""
        text = self._text[: self._decided_length()]
        starts = [token.map[0] for token in _PARSER.parse(text) if token.level == 0 and token.map]
        if not starts or not starts[-1]:
            return None
        lines = self._text.split("\n")
        finished, self._text = "\n".join(lines[: starts[-1]]), "\n".join(lines[starts[-1] :])
        return self._render(finished) if finished.strip() else None

    def unfinished(self, max_height: int) -> RenderedMarkdown | None:
        """Return the last lines of the block that can still change. None if it is empty."""
        text = self._text[: self._decided_length()]
        return RenderedMarkdown(text, gap=not self._is_first, max_height=max_height) if text.strip() else None

    def close(self) -> RenderedMarkdown | None:
        """Return the rest. None if it is empty."""
        text, self._text = self._text, ""
        return self._render(text) if text.strip() else None

    def _decided_length(self) -> int:
        line_start = self._text.rfind("\n") + 1
        return line_start if _UNDECIDED_LINE.fullmatch(self._text, line_start) else len(self._text)

    def _render(self, text: str) -> RenderedMarkdown:
        gap, self._is_first = not self._is_first, False
        return RenderedMarkdown(text, gap=gap)


class RenderedMarkdown:
    """Blocks of Markdown, rendered with rich: the last `max_height` lines, and a blank line before them with `gap`."""

    def __init__(self, text: str, *, gap: bool, max_height: int | None = None) -> None:
        self._markdown = _Markdown("", code_theme="ansi_dark", hyperlinks=False)
        self._markdown.parsed = _PARSER.parse(text)
        for token in self._markdown.parsed:
            token.content = printable(token.content)  # an entity such as &#27; is a control character
            token.info = printable(token.info)
            if token.type == "inline":
                token.children = list(_inline_tokens(token.children or []))
        self._gap = gap
        self._max_height = max_height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options.update(height=None), pad=False)
        texts = ["".join(segment.text for segment in line).strip() for line in lines]
        first = next((index for index, text in enumerate(texts) if text), 0)
        last = next((index for index in reversed(range(len(texts))) if texts[index]), -1)
        lines = lines[first : last + 1]
        if self._gap:
            lines.insert(0, [])
        for line in lines[-self._max_height :] if self._max_height else lines:
            yield from line
            yield Segment.line()


def _inline_tokens(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the tokens of a line. Line feeds stay, and a link whose text is its address shows it once."""
    tokens = list(tokens)
    is_bare_link = False
    for index, token in enumerate(tokens):
        token.content = printable(token.content)
        if token.type == "softbreak":
            token.type = "hardbreak"
        elif token.type == "link_open":
            address = str(token.attrs.get("href", ""))
            token.attrs["href"] = printable(address)
            is_bare_link = tokens[index + 1].content == address
            if is_bare_link:
                continue
        elif token.type == "link_close" and is_bare_link:
            continue
        yield token


class _Heading(rich_markdown.Heading):
    """A heading at the left margin, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.stylize({"h1": "bold underline", "h2": "bold"}.get(self.tag, "bold italic"))
        yield text


class _CodeBlock(rich_markdown.CodeBlock):
    """A code block without a background, between dim fences that separate it from text without colours."""

    fence = language = ""

    @classmethod
    def create(cls, markdown: rich_markdown.Markdown, token: Token) -> _CodeBlock:
        block = cls(token.info.partition(" ")[0] or "text", markdown.code_theme)
        block.fence, block.language = token.markup, token.info.strip()
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.syntax import Syntax

        if self.fence:
            yield Text(f"{self.fence}{self.language}", "dim")
        if code := self.text.plain.removesuffix("\n"):
            yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")
        if self.fence:
            yield Text(self.fence, "dim")


class _Markdown(rich_markdown.Markdown):
    elements: ClassVar[dict[str, type[rich_markdown.MarkdownElement]]] = {
        **rich_markdown.Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
    }
