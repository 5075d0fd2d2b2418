"""Markdown that is drawn while it grows: the same lines however it is cut, finished ones for good, nothing lost."""

from __future__ import annotations

import io
import random
import re

import pytest

from streamtools import ToolCall
from streamtools.apps.cli.growing_markdown import GrowingMarkdown, LiveRegion
from streamtools.apps.cli.run_summary import describe
from streamtools.apps.cli.transcript import Terminal, Transcript
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

  a paragraph

1. first
2. second
1. third

| a | b |
|---|--:|
| 1 | 22 |

```python
def f():
    return 1
```

> said
> twice

***

[defined]: https://a.org
![image](https://a.org/b.png)
"""
DRAWN = """\
Title

Some bold text with code and
a link (https://a.org/b), https://a.org & <b>HTML</b>.

 • one
 • two
    • nested
   a paragraph

 1. first
 2. second
 3. third

a    b
──────
1   22

```python
def f():
    return 1
```

▌ said
▌ twice

─────────────────────────────────────────────────────────

[defined]: https://a.org
!image (https://a.org/b.png)"""


class Drawing:
    """What is on a screen after each piece of a text."""

    def __init__(self, width: int = WIDTH, height: int = HEIGHT) -> None:
        self._file = io.StringIO()
        console = Terminal(file=self._file, force_terminal=True, width=width, height=height)
        self.screen = Screen(width, height)
        self._markdown, self._region = GrowingMarkdown(console), LiveRegion(console)
        self._height = height - 2
        self.live: list[str] = []
        self.finished = 0
        self.written = 0

    def add(self, text: str, *, final: bool = False) -> None:
        """Draw one piece; what is finished was not altered before."""
        self._markdown.feed(text)
        finished, self.live = self._markdown.lines(self._height, final=final)
        self._region.paint(finished, self.live)
        written = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        self.written += len(written)
        self.screen.altered.clear()
        self.screen.feed(written)
        assert not {row for row in self.screen.altered if row < self.finished}, "a finished line has been altered"
        self.finished += len(finished)
        assert len(self.live) <= self._height

    @property
    def shown(self) -> str:
        """All rows, those that are scrolled away too."""
        return "\n".join(self.screen.rows).rstrip("\n")


def drawn(text: str, most: int, seed: int = 0, width: int = WIDTH, height: int = HEIGHT) -> Drawing:
    """Return what has been drawn of a text that came in pieces of at most so many characters."""
    cuts = random.Random(seed)
    drawing = Drawing(width, height)
    while text:
        size = cuts.randint(1, most)
        drawing.add(text[:size])
        text = text[size:]
    drawing.add("", final=True)
    return drawing


def test_what_is_drawn() -> None:
    """Blocks as a reader of Markdown knows them; what could hide text is text: HTML, images, definitions of links."""
    assert DRAWN == drawn(DOCUMENT, len(DOCUMENT), width=58, height=60).shown


@pytest.mark.parametrize("seed", range(4))
def test_cuts_do_not_matter(seed: int) -> None:
    """However the text is cut, the screen shows the same in the end, and no finished line was touched."""
    long = "\n".join(f"{number}. item **{number}**" for number in range(1, 20))
    code = "```js\n" + "\n".join(f"let x{number} = {number}" for number in range(20)) + "\n```\n"
    text = DOCUMENT + "\n" + "word " * 200 + "\n\n" + long + "\n\n" + code + "\nThe end."
    whole = drawn(text, 1).shown
    assert whole == drawn(text, 20, seed).shown
    assert all(f"item {number}" in whole and f"let x{number} = {number}\n" in whole for number in range(1, 20))
    assert 200 == whole.count("word")


@pytest.mark.parametrize(
    "text",
    [
        "| a | b |\n|---|---|\n" + "".join(f"| row {number} | {'x' * number} |\n" for number in range(30)),
        "- top\n" + "".join(f"  - row {number}\n" for number in range(30)),
        "> quote\n" + "".join(f"> row {number}\n" for number in range(30)),
        "text\n" + "".join(f"row {number}\n" for number in range(30)),
        "    code\n" + "".join(f"    row {number}\n" for number in range(30)),
        "1. top\n\n   ```sh\n" + "".join(f"   row {number}\n" for number in range(30)) + "   ```\n",
    ],
)
def test_a_block_that_is_longer_than_the_screen(text: str) -> None:
    """Its end is seen while it grows, and all of it is there when it is finished, once."""
    drawing = drawn(text, 7)
    assert all(1 == len(re.findall(rf"row {number}\b", drawing.shown)) for number in range(30))


def test_the_cost_does_not_grow_with_the_answer() -> None:
    """A piece behind 45 kB of one block makes no more to write than one behind 9 kB."""
    for beginning in ("", "```\n", "- ", "> ", "| a |\n|---|\n"):
        drawing = Drawing()
        sizes: list[int] = []
        for text in (9_000, 36_000):
            drawing.add(
                (beginning if not sizes else "") + "a few words, \n"[: 13 if beginning == "- " else 14] * (text // 13)
            )
            before = drawing.written
            drawing.add("more ")
            sizes.append(drawing.written - before)
            assert len(drawing._markdown._source) <= 8_100
        assert sizes[1] <= sizes[0] + 1_000


@pytest.mark.parametrize("most", [1, 7, 500])
def test_pictures_that_are_joined(most: int) -> None:
    """A terminal that shows each of them beside the next has longer lines than they were made for; none is repeated."""
    family = "👩\u200d👩\u200d👧\u200d👦"
    drawing = drawn(f"- {' '.join([family] * 30)}\n\n{family} end\n", most, width=30)
    assert "•" + family * 31 + "end" == "".join(drawing.shown.split())


def test_what_is_undecided_is_not_shown_yet() -> None:
    """The beginning of a list, a rule or a fence would be text for a moment, or make a heading of the text."""
    for undecided in ("-", "- ", "1", "1.", "#", "```", "| -", "> ", "**"):
        drawing = Drawing()
        drawing.add(f"Text\n{undecided}")
        assert drawing.live == ["Text"]
        drawing.add("", final=True)
    assert "Text\n**" == drawing.shown


@pytest.mark.parametrize(
    "text",
    [
        "text\n```[](x) is no fence`, and goes on",
        "e\u0301e\u0301 日本語日本語日本語日本語日本語日本語日本語 **e\u0301** - [ ] [a](",
        "***\n<!-- \n2) 1. - > # x\n\n\n   ~~~\n    a\n\n\n b\n  ~~~ \n|---|\n| a |\n|---|\n",
        "- a\n\n\n  b\n\n- c\n\n2. d\n10) e\n+ f\n+\n+ g",
    ],
)
def test_what_a_parser_may_stumble_over(text: str) -> None:
    """The same is shown, whether it comes at once or character by character."""
    assert drawn(text, len(text)).shown == drawn(text, 1).shown


def test_text_goes_on_where_it_was() -> None:
    """Plain text is written piece by piece, and nothing of it twice."""
    drawing = drawn("Some text without any markup.", 1)
    assert len("Some text without any markup.") * (1 + len("\x1b[K")) + 2 >= drawing.written


def test_a_terminal_that_is_made_narrower() -> None:
    """The rows that a line takes now are counted, so that the cursor comes to where the lines begin."""
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=True, width=10, height=20)
    region = LiveRegion(console)
    region.paint([], ["12345678", "\x1b[1mabcdefgh\x1b[0m"])
    console.width = 4
    file.truncate(0)
    region.paint([], ["new"])
    assert file.getvalue().lstrip("\0").startswith("\x1b[3A\r")


_CALL = ToolCall(id="call_1", name="copy", arguments={"files": 3}, dialect="hash_marker", raw="###:{}")


def transcript(**options: object) -> tuple[Transcript, io.StringIO]:
    """Return a transcript that draws, and what it writes to."""
    file = io.StringIO()
    console = Terminal(file=file, force_terminal=True, width=WIDTH, height=HEIGHT)
    return Transcript(console, live=True, markdown=True, **options), file  # type: ignore[arg-type]  # any of them


def test_progress_is_told_in_place() -> None:
    """What a tool has reached replaces what it had, with how long it takes; in the end there is one line."""
    now = 0.0
    shown, file = transcript(clock=lambda: now)
    screen = Screen(WIDTH, HEIGHT)
    stages: list[tuple[UIEvent, str]] = [
        (Text("Wait **a moment**."), "Wait a moment."),
        (Thinking(True, "call_1"), "Wait a moment.\n\n🔧 Waiting for tool call completion..."),
        (Call(_CALL), "Wait a moment.\n\n→ copy(files=3)\n"),
        (Executing(_CALL), "→ copy(files=3)\n🔧 Executing tool: copy..."),
        (Progress("call_1", {"copied": 1}), '→ copy(files=3)\n🔧 Executing tool: copy... {"copied": 1}'),
        (Progress("call_1", {"copied": 2}), '→ copy(files=3)\n🔧 Executing tool: copy... {"copied": 2} (2 s)'),
        (Executed(_CALL, 3, None, 2.5), "→ copy(files=3)\n🔧 Executed copy → 3 (2.5 s)\n"),
        (Text("\n\nDone"), "🔧 Executed copy → 3 (2.5 s)\n\nDone"),
        (Reasoning("Hm."), "Done\n\n💭 Hm."),
        (Done("finished", "stop", "stop", []), "Done\n\n💭 Hm."),
    ]
    for event, expected in stages:
        if isinstance(event, Progress) and event.data == {"copied": 2}:
            now = 2.5
        shown.show(event)
        screen.feed(file.getvalue())
        file.seek(0)
        file.truncate()
        assert "\n".join(row.rstrip() for row in screen.rows).endswith(expected), event


def test_drawings_that_are_left_out_are_made_up_for() -> None:
    """Text that comes sooner than the screen can be read is drawn with the next tick."""
    shown, file = transcript(clock=lambda: 0.0, pause=1)
    shown.show(Text("One "))
    shown.show(Text("two"))
    assert "One" in file.getvalue()
    assert "two" not in file.getvalue()
    shown.tick()
    assert "two" in file.getvalue()


def test_raw_is_not_drawn() -> None:
    """As the model wrote it."""
    shown, file = transcript(raw=True)
    shown.show(Text("# **Title**\n"))
    assert "# **Title**\n" == file.getvalue()


@pytest.mark.parametrize("reason", ["stopped", "cancelled", "truncated", "failed"])
def test_only_what_is_finished_is_green(reason: str) -> None:
    """A run that was stopped, or that waits for somebody, is not."""
    for result in (TurnResult(reason=reason), TurnResult(reason="finished", pending=[_CALL])):  # type: ignore[arg-type]
        (text, style), _ = describe(result, 1.0)
        assert "green" not in style
        assert "✔" not in text
