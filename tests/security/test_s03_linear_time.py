"""S3: no text makes a parser or a regular expression take more than linear time.

The tests use no clock. One counts function calls while text with unclosed openers is read: the count must grow
linearly. The other examines the parsed form of each regular expression, because `re` calls no functions.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from streamtools import Parser, parse
from streamtools.parsing.dialects import Dialect
from streamtools.tools import Tool
from tests.security.patterns import faults
from tests.support.bounds import calls_made
from tests.support.cases import together
from tests.support.variants import KNOWN

MIB = 1024 * 1024


def get_weather(city: str, days: int = 1) -> str:
    """Tell the weather."""
    return "rain"


TOOLS = [Tool(get_weather)]


def parse_all(deltas: Sequence[str], dialect: Dialect) -> None:
    """Read the deltas."""
    parser = Parser([dialect], TOOLS)
    for delta in deltas:
        parser.feed(delta)
    parser.close()


def openers(dialect: Dialect) -> dict[str, str]:
    """Return texts that open a call and never close it, and texts that nearly open one."""
    call = dialect.write_call("get_weather", {"city": "a", "days": 2})
    cuts = {"half of an opener": 5, "a third of a call": len(call) // 3, "all but its end": -1}
    return {name: call[:at] for name, at in cuts.items()} | {"one opener, and no end": ""}


@pytest.mark.deep
@pytest.mark.parametrize("dialect", KNOWN.values(), ids=KNOWN.keys())
@pytest.mark.parametrize("size", [3, MIB], ids=["in threes", "at once"])
def test_twice_the_openers_take_twice_the_work(dialect: Dialect, size: int) -> None:
    """Holds for each dialect."""
    for name, piece in openers(dialect).items():

        def work(length: int, piece: str = piece) -> int:
            opened = dialect.write_call("get_weather", {"city": "a", "days": 2})
            text = piece * (length // len(piece)) if piece else opened[: len(opened) // 2] + 'a "b" {\n' * (length // 8)
            deltas = [text[at : at + size] for at in range(0, len(text), size)]
            return calls_made(lambda: parse_all(deltas, dialect))

        lengths = (4096, 8192, 16384)
        for length in lengths:  # create what is cached
            work(length)
        once, twice, four_times = map(work, lengths)
        assert four_times - twice < 3 * (twice - once) + 500, name  # 2 if linear, 4 if quadratic


@pytest.mark.deep
def test_no_pattern_is_super_linear() -> None:
    """No pattern for untrusted text is. The exceptions are listed with the reason."""
    command = [sys.executable, "-m", "tests.security.patterns"]
    rows = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = {
        pattern: sorted(set(told))
        for is_bytes, pattern, flags, _ in rows
        if (told := list(faults(pattern.encode("latin-1") if is_bytes else pattern, flags)))
    }

    unknown = {pattern: told for pattern, told in found.items() if not pattern.startswith(tuple(HARMLESS))}
    assert {} == unknown
    assert len(rows) > 500
    assert [] == [each for each in HARMLESS if not any(pattern.startswith(each) for pattern in found)]


HARMLESS = {
    r'[^"\\\n]*"[-+.0-9eE': "matched at a place that is known, and never searched for",
    r"[-+.0-9eE \t\r\n,:]*+(": "the same",
    r"\.(?P<name>": "the same; each alternative ends at the character that it looks for",
    r"(?:functions?[./:])?(.+)": "matched against the whole of an id",
    r"^<tool_instructions>": "each search stops where the next could begin",
    r"[\r\n]*\{(?=": "matched at the beginning of a file of one's own",
    r"\[[^]]*\]|.": "reads the patterns of this package",
    r"\[.*?\]": "reads the patterns of this package",
    r"\*{0,2}(\w+)\s*(?:": "reads docstrings",
    r"(?:call(?=[\s:=]|\Z))?": "matched against the whole of a name of at most 256 characters",
    r"\s*+(?:,\s*+)?([\]}])": "matched at a place that is known",
    r"=\s*(?:": "searched in one tag of at most 256 characters",
    r".*>\s*([^<>]*?)": "searched in one tag of at most 256 characters",
    r"\sname\s*=": "searched in one tag of at most 256 characters",
    r"[^/?#]*(?://": "matched at the beginning of a URL",
}
"""What only looks as if it could take long: how the pattern begins, and why it does not."""


@together(
    "pattern",
    [r"(a*)*b", r"(?:a|b*)*c", r"(a+)+$", r"\s*\s*x", r"\d+(\.)?\d+x", r"[a-z]*_[a-z_]*!", r" +x", r"<[^>]*>",
     r"([^=]+)=x", r"(\d+(?:_\d+)*)?(\.)?(\d+)?"],
)  # fmt: skip
def test_super_linear_patterns_are_found(pattern: str) -> None:
    """They have nested or adjacent repetitions, or a search starts within its own repetition."""
    assert [] != list(faults(pattern))


@pytest.mark.parametrize("pattern", [r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', r"\d+(?:_\d+)*", r"#{1,6}[ \t]", r"(?<!\w)\w++="])
def test_linear_patterns_are_not_reported(pattern: str) -> None:
    """Their repetitions are possessive, separated or bounded."""
    assert [] == list(faults(pattern))


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        pytest.param(
            "lfm2_pythonic", f"<|tool_call_start|>[get_weather(days={'1' * 4000}x)]<|tool_call_end|>", id="digits"
        ),
        pytest.param(
            "kimi_k3_xtml",
            '<|open|>tools<|sep|><|open|>call tool="get_weather"<|sep|>'
            + f'<|open|>argument key="a" {"a" * 4000}<|sep|>' * 9,
            id="attributes without a value",
        ),
    ],
)
def test_patterns_that_were_quadratic(dialect: str, text: str) -> None:
    """Each took twenty seconds for 200 KB."""
    assert [] == parse(text, dialects=[dialect], tools=TOOLS).calls
