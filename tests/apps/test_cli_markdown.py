"""Markdown that is rendered while it grows: the same lines for every cut, finished lines stay, no character is lost."""

from __future__ import annotations

import io
import random
import re

import pytest

from streamtools import ToolCall
from streamtools.apps.cli.transcript import Terminal, Transcript, summarize
from streamtools.events import Call, Done, Executed, Executing, Progress, Reasoning, Text, Thinking, UIEvent
from streamtools.stream.result import TurnResult
from tests.support.screen import Screen

WIDTH, HEIGHT = 50, 14

DOCUMENT = """\
# Title

Some **bold** text with `code` and
a [link](https://a.org/b), <https://a.org> &amp; <b>HTML</b>.

- one
- two
  - nested

1. first
2. second
1. third

```python
def f():
    return 1
```

> said
> twice

[defined]: https://a.org
![image](https://a.org/b.png)
"""
RENDERED = """\
Title

Some bold text with code and
a link (https://a.org/b), https://a.org & <b>HTML</b>.

 • one
 • two
    • nested

 1 first
 2 second
 3 third

```python
def f():
    return 1
```

▌ said
▌ twice

[defined]: https://a.org
!image (https://a.org/b.png)"""


class Drawing:
    """A transcript, and the screen that it draws on."""

    def __init__(self, width: int = WIDTH, height: int = HEIGHT, **options: object) -> None:
        self._file = io.StringIO()
        console = Terminal(file=self._file, force_terminal=True, width=width, height=height)
        self.transcript = Transcript(console, live=True, markdown=True, **options)  # type: ignore[arg-type]
        self.screen = Screen(width, height)

    def show(self, event: UIEvent) -> str:
        """Show an event, and return all rows of the screen, those that are scrolled away too."""
        self.transcript.show(event)
        self.screen.feed(self.take())
        return self.rows

    @property
    def rows(self) -> str:
        return "\n".join(row.rstrip() for row in self.screen.rows).rstrip("\n")

    def take(self) -> str:
        """Return what was written since the last call."""
        written = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return written


def rendered(text: str, longest: int, seed: int = 0, width: int = WIDTH, height: int = HEIGHT) -> str:
    """Return the screen after a text in pieces of at most `longest` characters."""
    cuts = random.Random(seed)
    drawing = Drawing(width, height, clock=lambda: 0.0)
    while text:
        size = cuts.randint(1, longest)
        drawing.show(Text(text[:size]))
        text = text[size:]
    drawing.transcript.end_line()
    drawing.screen.feed(drawing.take())
    return drawing.rows


def test_blocks_are_rendered() -> None:
    """HTML, images and link definitions could hide text, so they are shown as text."""
    assert RENDERED == rendered(DOCUMENT, len(DOCUMENT), width=58, height=60)


@pytest.mark.parametrize("seed", range(3))
def test_cuts_do_not_matter(seed: int) -> None:
    items = "\n".join(f"{number}. item **{number}**" for number in range(1, 20))
    code = "```js\n" + "\n".join(f"let x{number} = {number}" for number in range(20)) + "\n```\n"
    text = DOCUMENT + "\n" + "word " * 200 + "\n\n" + items + "\n\n" + code + "\nThe end."
    whole = rendered(text, len(text))
    assert whole == rendered(text, 20, seed)
    assert 200 == whole.count("word")


@pytest.mark.parametrize("marker", ["- ", "> ", "1. ", "    ", "text "])
def test_a_block_that_is_longer_than_the_screen(marker: str) -> None:
    """The end is visible while it grows, and each line is on the screen once when it is finished."""
    text = "".join(f"{marker}row {number}\n" for number in range(30))
    drawing = Drawing(clock=lambda: 0.0)
    drawing.show(Text(text))
    assert "row 29" in drawing.rows
    shown = rendered(text, 7)
    assert all(1 == len(re.findall(rf"row {number}\b", shown)) for number in range(30))


def test_an_undecided_line_is_not_shown() -> None:
    """The beginning of a list, a rule or a fence would be text for a moment, or make a heading of the text."""
    for undecided in ("-", "- ", "1", "1.", "#", "```", "| -", "> ", "**"):
        drawing = Drawing()
        assert "Text" == drawing.show(Text(f"Text\n{undecided}"))
    drawing.transcript.end_line()
    drawing.screen.feed(drawing.take())
    assert "Text\n**" == drawing.rows


@pytest.mark.parametrize(
    "text",
    [
        "text\n```[](x) is no fence`, and goes on",
        "e\u0301e\u0301 日本語日本語日本語日本語日本語日本語日本語 **e\u0301** - [ ] [a](",
        "***\n<!-- \n2) 1. - > # x\n\n\n   ~~~\n    a\n\n\n b\n  ~~~ \n|---|\n| a |\n|---|\n",
        "- a\n\n\n  b\n\n- c\n\n2. d\n10) e\n+ f\n+\n+ g",
    ],
)
def test_odd_markdown(text: str) -> None:
    assert rendered(text, len(text)) == rendered(text, 1)


_CALL = ToolCall(id="call_1", name="copy", arguments={"files": 3}, dialect="hash_marker", raw="###:{}")


def test_progress_replaces_progress() -> None:
    """Status lines show the progress and the seconds. In the end there is one line."""
    now = 0.0
    drawing = Drawing(clock=lambda: now)
    stages: list[tuple[UIEvent, str]] = [
        (Text("Wait **a moment**."), "Wait a moment."),
        (Thinking(True, "call_1"), "Wait a moment.\n\n🔧 Waiting for tool call completion..."),
        (Call(_CALL), "Wait a moment.\n\n→ copy(files=3)"),
        (Executing(_CALL), "→ copy(files=3)\n🔧 Executing tool: copy..."),
        (Progress("call_1", {"copied": 1}), '→ copy(files=3)\n🔧 Executing tool: copy... {"copied": 1}'),
        (Progress("call_1", {"copied": 2}), '→ copy(files=3)\n🔧 Executing tool: copy... {"copied": 2} (2 s)'),
        (Executed(_CALL, 3, None, 2.5), "→ copy(files=3)\n🔧 Executed copy → 3 (2.5 s)"),
        (Text("\n\nDone"), "🔧 Executed copy → 3 (2.5 s)\n\nDone"),
        (Reasoning("Hm."), "Done\n\n💭 Hm."),
        (Done("finished", "stop", "stop", []), "Done\n\n💭 Hm."),
    ]
    for event, expected in stages:
        if isinstance(event, Progress) and event.data == {"copied": 2}:
            now = 2.5
        assert drawing.show(event).endswith(expected), event


def test_update_draws_skipped_text() -> None:
    drawing = Drawing(clock=lambda: 0.0, min_interval=1)
    drawing.transcript.show(Text("One "))
    drawing.transcript.show(Text("two"))
    assert "two" not in drawing.take()
    drawing.transcript.update()
    assert "two" in drawing.take()


def test_raw_text_is_not_rendered() -> None:
    drawing = Drawing(raw=True)
    drawing.transcript.show(Text("# **Title**\n"))
    assert "# **Title**\n" == drawing.take()


@pytest.mark.parametrize("reason", ["stopped", "cancelled", "truncated", "failed"])
def test_only_a_finished_run_is_green(reason: str) -> None:
    for result in (TurnResult(reason=reason), TurnResult(reason="finished", pending=[_CALL])):  # type: ignore[arg-type]
        (text, style), _ = summarize(result, 1.0)
        assert "green" not in style
        assert "✔" not in text
