"""Tests of calls whose special tokens a server has removed, and of their table in `docs/troubleshooting.md`."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

import pytest

from streamtools import parse
from streamtools.parsing import DIALECTS, Opener, ParseResult
from streamtools.parsing.bodies import Members
from streamtools.parsing.span import Span
from tests.whole import stripped_tokens
from tests.whole.stripped_tokens import TOOLS, is_read, read_remainder, remainder, with_tokens


def test_the_page_has_the_table() -> None:
    """`python -m tests.whole.stripped_tokens` writes it."""
    page = stripped_tokens.PAGE.read_text()
    assert stripped_tokens.replace_table(page) == page


def is_safe(dialect: str, result: ParseResult) -> bool:
    """Return whether what remains of a call is the same call, or text that the reader sees whole."""
    return is_read(result) or (result.content == remainder(dialect) and not (result.calls or result.errors))


@pytest.mark.parametrize("dialect", with_tokens())
def test_what_remains_of_a_call_is_the_call_or_text(dialect: str) -> None:
    """With the dialect, and by default."""
    assert is_safe(dialect, read_remainder(dialect))
    assert is_safe(dialect, parse(remainder(dialect), tools=TOOLS))


def _without_arguments(span: Span) -> Generator[None, None, None]:
    yield from span.peek()
    span.set_name("get_weather")
    Members(span).end()
    span.close()


def test_a_call_with_other_arguments_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    kimi = DIALECTS["kimi_k2"]
    opener = Opener(("functions.get_weather:0",), _without_arguments, ahead=("{",), where="start")
    created = getattr(DIALECTS, "_created")  # noqa: B009
    monkeypatch.setitem(created, "kimi_k2", replace(kimi, openers=(*kimi.openers, opener)))

    assert not is_safe("kimi_k2", read_remainder("kimi_k2"))
    assert is_safe("mistral_args", read_remainder("mistral_args"))
