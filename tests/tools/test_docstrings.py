"""Docstrings of functions and parameters, in Google's style."""

from __future__ import annotations

import pytest

from streamtools.tools.functions import Documentation, read_docstring
from tests.support.cases import together

GOOGLE = """Look it up.

    In a list that is
    on two lines.

    - first
    - second

    Args:
        city (str, optional): Where: a name,
            in English.

            With its country.
        *rest: More.
        a line that is none
        empty:
        days: How many.

    Returns:
        found: What there is.
    """
LOOK = "Look it up.\n\nIn a list that is\non two lines.\n\n- first\n- second"
PARAMETERS = {"city": "Where: a name, in English. With its country.", "rest": "More.", "days": "How many."}
TWICE = "Both.\n\n    Args:\n        a: one\n\n    Keyword Args:\n        a: two\n        b: three\n"
ODD = "So.\n\n\n    And.\n\n    Args:\n        a: x\n        none of them\n            deeper\n        nor this"


@together(
    ("text", "description", "parameters"),
    [
        pytest.param(None, "", {}, id="none"),
        pytest.param("", "", {}, id="empty"),
        pytest.param("One\n    line.", "One\nline.", {}, id="one paragraph"),
        pytest.param(GOOGLE, LOOK, PARAMETERS, id="Google"),
        pytest.param(TWICE, "Both.", {"a": "one", "b": "three"}, id="the first description counts"),
        pytest.param(ODD, "So.\n\n\nAnd.", {"a": "x"}, id="lines that are none"),
        pytest.param("Note: text.\n\nArgs: more text.", "Note: text.\n\nArgs: more text.", {}, id="no sections"),
        pytest.param("Args:\nnothing indented", "Args:\nnothing indented", {}, id="a title alone"),
        pytest.param("So.\n\nReturns", "So.\n\nReturns", {}, id="a title at the end"),
        pytest.param("So.\n\n>>> f(1)\n2\n\nLater.", "So.", {}, id="a doctest"),
        pytest.param("So.\n\n    Example:\n        city: none\n", "So.", {}, id="another section"),
        pytest.param("Steps:\n\n1. one\n2. two", "Steps:\n\n1. one\n2. two", {}, id="a numbered list"),
        pytest.param("So:\n    code()\n      more()", "So:\ncode()\n  more()", {}, id="a block"),
        pytest.param("A.\n\n    Args:\n        a (dict[str, tuple[int, ...]]): x", "A.", {"a": "x"}, id="a long type"),
    ],
)
def test_a_docstring_is_read(text: str | None, description: str, parameters: dict[str, str]) -> None:
    """The description ends at the first section. Parameters get their own descriptions."""
    assert Documentation(description, parameters) == read_docstring(text)
