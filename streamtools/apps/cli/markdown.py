"""Renders Markdown on a terminal with rich while more text arrives.

`MarkdownStream` splits the text into finished blocks and the last block. Finished blocks are printed once. The last
block may change when more text arrives. No part of the text is hidden: HTML, images and link definitions are shown as
text, and the addresses of links are shown.
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
"""Matches an unfinished line that may become a list, a rule or a code fence. Such a line is not shown until it is
decided."""


class MarkdownStream:
    """Splits a stream of Markdown text into blocks. The text must be printable, see `Printable`."""

    def __init__(self) -> None:
        self._text = ""  # the text that `take_finished` has not returned
        self._is_first = True

    def feed(self, text: str) -> None:
        self._text = (self._text + text).lstrip("\n")

    def take_finished(self) -> RenderedMarkdown | None:
        """Remove and return the finished blocks, which more text cannot change. Returns None if there are none."""
        text = self._text[: self._decided_length()]
        starts = [token.map[0] for token in _PARSER.parse(text) if token.level == 0 and token.map]
        if not starts or not starts[-1]:
            return None
        lines = self._text.split("\n")
        finished, self._text = "\n".join(lines[: starts[-1]]), "\n".join(lines[starts[-1] :])
        return self._render(finished) if finished.strip() else None

    def unfinished(self, max_height: int) -> RenderedMarkdown | None:
        """Return the last `max_height` lines of the unfinished block. Returns None if the block is empty."""
        text = self._text[: self._decided_length()]
        return RenderedMarkdown(text, gap=not self._is_first, max_height=max_height) if text.strip() else None

    def close(self) -> RenderedMarkdown | None:
        """Return the remaining text as blocks. Returns None if there is no text."""
        text, self._text = self._text, ""
        return self._render(text) if text.strip() else None

    def _decided_length(self) -> int:
        line_start = self._text.rfind("\n") + 1
        return line_start if _UNDECIDED_LINE.fullmatch(self._text, line_start) else len(self._text)

    def _render(self, text: str) -> RenderedMarkdown:
        gap, self._is_first = not self._is_first, False
        return RenderedMarkdown(text, gap=gap)


class RenderedMarkdown:
    """Blocks of Markdown that rich can print. With `gap=True`, a blank line precedes them.

    `max_height` limits the output to the last lines. None means no limit.
    """

    def __init__(self, text: str, *, gap: bool, max_height: int | None = None) -> None:
        self._markdown = _Markdown("", code_theme="ansi_dark", hyperlinks=False)
        self._markdown.parsed = _PARSER.parse(text)
        for token in self._markdown.parsed:
            token.content = printable(token.content)  # an entity such as &#27; becomes a control character
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
    """Yield the tokens of inline text. Line feeds are kept. If the text of a link is its address, it is shown once."""
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
    """A code block without a background colour. It is shown between dim fences, which separate it from other text."""

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
