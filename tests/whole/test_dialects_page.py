"""`docs/dialects.md` and `docs/models.md` are what the tables of dialects and of models make of them."""

from __future__ import annotations

from streamtools import parse
from streamtools.parsing import DIALECTS
from tests.support.cases import cases
from tests.whole.dialects_page import EXAMPLE, MODELS_PAGE, PAGE, read_example, write_models, write_page


def test_the_pages_say_what_the_tables_say() -> None:
    """Where they do not, `python -m tests.whole.dialects_page` writes them anew."""
    assert write_page() == PAGE.read_text(encoding="utf-8")
    assert write_models() == MODELS_PAGE.read_text(encoding="utf-8")


def test_the_pages_hold_no_call() -> None:
    """A model that repeats them calls nothing: each example stands in a fence, where calls are text."""
    for page in (PAGE, MODELS_PAGE):
        assert [] == parse(page.read_text(encoding="utf-8"), dialects="auto").calls


def test_an_example_is_read_as_it_was_meant() -> None:
    """With the tool declared, name and arguments come back."""
    with cases() as case:
        for name, dialect in DIALECTS.items():
            with case(name):
                assert EXAMPLE == read_example(dialect)
