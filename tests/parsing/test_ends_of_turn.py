"""Tests of the tokens that end a message. A server may not remove them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from streamtools import Parser
from streamtools.limits import Limits
from streamtools.parsing.dialects import DIALECTS
from streamtools.parsing.reader import Reader
from streamtools.testing.laws import cut
from tests.families.base import ENDS_OF_TURN
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, read, warning
from tests.support.ways_to_cut import some

f = call("f", a="x", n=3)
CUT, UNCLOSED = error("truncated"), warning("missing_close")
BROKEN = error("unrecognised_tool_call")
TOOLS = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}}]

# Brackets and tags at the end of a call.
_ends_of_call = re.compile(
    r"(?:\]<\]minimax\[>\[|[ \n\]})]|<\|close\|>\w+<\|sep\|>|<(?!\|sep)[^<>]*>|\[[A-Z_/]+\]|```|~~~|JSON_END)*"
).fullmatch


@together("dialect", DIALECTS)
def test_an_end_token_after_a_call_is_hidden(dialect: str) -> None:
    """Only white space may precede it. Elsewhere it is text."""
    text = DIALECTS[dialect].write_call("f", {"a": "x", "n": 3}).rstrip("\n")
    line_feed = "\n" if dialect != "granite_lines" else ""

    for token in _tokens(dialect)[:: 1 if dialect == "hermes_json" else 9]:
        for whole, expected in ((text + token, [f]), (f"{text}\n{token} a", [f, f"{line_feed} a"])):
            assert expected == _joined(_events([whole], dialect)) == _joined(_events(list(whole), dialect))


def test_an_end_token_without_a_call_is_text() -> None:
    for token in ENDS_OF_TURN:
        assert [f"a{token}"] == read(f"a{token}", dialects=["tilde_fence"])


def _tokens(dialect: str) -> list[str]:
    """Return the tokens that end no message of another kind, and that cannot be an item of an open list."""
    if "minimax" in dialect:
        return [*ENDS_OF_TURN]
    return [token for token in ENDS_OF_TURN if token not in ("<|end|>", "<|return|>") and token[0] != "["]


def _unclosed(dialect: str) -> Iterator[str]:
    """Yield a call without some of its closing tags, where the end of the stream completes it."""
    for arguments in ({"a": "x", "n": 3}, {"a": "<b>&</b>"}, {}):
        text = DIALECTS[dialect].write_call("f", arguments)
        yield from (text[:at] for at in range(len(text), 0, -1) if _ends_of_call(text, at))


def _events(deltas: list[str], dialect: str) -> list[Brief]:
    parser = Parser(dialects=[dialect], tools=TOOLS)
    return brief([event for delta in deltas for event in parser.feed(delta)] + parser.close())


def _joined(events: list[Brief]) -> list[Brief]:
    """Return the events, with all texts as one text at the end."""
    text = "".join(event for event in events if isinstance(event, str))
    return [event for event in events if not isinstance(event, str)] + ([text] if text else [])


def _failures(dialect: str, tokens: list[str]) -> list[str]:
    """Return the texts in which a token does not act like the end of the stream."""
    failed = []
    for text in _unclosed(dialect):
        expected = _events([text], dialect)
        complete = any(event[0] == "call" for event in expected)
        for token in tokens if complete else tokens[:1]:
            whole = text + token
            ways = [whole], list(whole), [text, token], cut(whole, [*range(3, len(whole), 3)])
            for events in (_events(way, dialect) for way in ways):
                if events != expected if complete else any(event[0] == "call" for event in events):
                    failed.append(whole)
    return failed


@together("dialect", DIALECTS)
def test_an_end_token_acts_like_the_end_of_the_stream(dialect: str) -> None:
    """A call that needs more than its closing tags never runs."""
    tokens = _tokens(dialect)
    assert [] == _failures(dialect, [*some(tokens, len(tokens) // 3)])


def test_the_law_catches_a_reader_without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(*_: object) -> Iterator[None]:
        yield from ()

    monkeypatch.setattr(Reader, "at_turn_end", not_found)

    assert [] == [
        each for each in ("hermes_json", "kimi_k2", "gemma4", "qwen3_coder_xml") if not _failures(each, ["</s>"])
    ]


def test_an_end_token_in_a_value_is_content() -> None:
    token = "<|im_end|>"
    for dialect in DIALECTS.values():
        text = dialect.write_call("f", {"a": f"{token} {token}", "n": 3})
        assert [call("f", a=f"{token} {token}", n=3)] == read(text, dialects=[dialect.id], tools=TOOLS)


def test_malformed_json_before_an_end_token_is_cut() -> None:
    assert [CUT] == read('<tool_call>{"name": "f", "arguments": {<|im_end|>', dialects=["hermes_json"])


def test_text_after_an_end_token_is_read() -> None:
    """Also a second call."""
    unclosed = '<tool_call>{"name": "f", "arguments": {}}<|im_end|>'
    expected: list[Brief] = [call("f"), UNCLOSED, call("f"), UNCLOSED, " So."]
    assert expected == read(f"{unclosed}\n{unclosed} So.", dialects=["hermes_json"])


@together(
    ("dialect", "text", "expected"),
    [
        ("json_array", '[{"name":"f"},]<|im_end|> [a] b', [call("f"), " [a] b"]),
        ("hermes_json", '<tool_call>[{"name":"f"},]<|im_end|>b', [call("f")]),
        ("pangu_list", '[unused11][{"name":"f"},][unused12][EOS]b', [call("f"), "b"]),
        ("lfm2_pythonic", "<|tool_call_start|>f(a='x'y[<|tool_call_end|><|im_end|>b", [BROKEN, "b"]),
        ("lfm2_pythonic", "<|tool_call_start|>f(a='x'y)<|im_end|>b<|tool_call_end|><|to", [BROKEN, "<|to"]),
    ],
)
def test_an_end_token_does_not_change_the_malformed_call_before_it(
    dialect: str, text: str, expected: list[Brief]
) -> None:
    """A bracket or a tag has already ended the call. So it does not matter whether the token arrives with it."""
    assert expected == read(text, dialects=[dialect], tools=TOOLS)
    assert expected == read(text, dialects=[dialect], tools=TOOLS, limits=Limits(call=60))
