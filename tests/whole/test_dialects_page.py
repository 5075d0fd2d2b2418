"""`docs/dialects.md` is what the table of dialects makes of it."""

from __future__ import annotations

from streamtools import parse
from streamtools.parsing import DIALECTS
from tests.support.cases import cases
from tests.whole.dialects_page import EXAMPLE, PAGE, read_example, write_page


def test_the_page_says_what_the_table_says() -> None:
    """Where it does not, `python -m tests.whole.dialects_page` writes it anew."""
    assert write_page() == PAGE.read_text(encoding="utf-8")


def test_the_page_holds_no_call() -> None:
    """A model that repeats it calls nothing: each example stands in a fence, where calls are text."""
    assert [] == parse(PAGE.read_text(encoding="utf-8"), dialects="auto").calls


def test_an_example_is_read_as_it_was_meant() -> None:
    """With the tool declared, name and arguments come back."""
    with cases() as case:
        for name, dialect in DIALECTS.items():
            with case(name):
                assert EXAMPLE == read_example(dialect)
