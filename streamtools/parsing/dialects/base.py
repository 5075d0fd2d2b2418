"""What a dialect is: one object that reads calls and writes them.

Reading is a few openers, each with the grammar of what follows it. Writing is how a call and a result stand in the
history that goes back to the model, so that what a dialect writes, it reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from streamtools.parsing.markers import Opener


@dataclass(frozen=True)
class Dialect:
    """One way in which models write calls into their text.

    `in_code` says what a complete call inside a Markdown fence, code span or quote is. `write_call` and `write_result`
    return a block of text for a call's name and arguments, and for a tool's name and result.
    """

    id: str
    openers: tuple[Opener, ...]
    write_call: Callable[[str, dict[str, Any]], str]
    write_result: Callable[[str, Any], str]
    in_code: Literal["text", "call"] = "text"


def compact(value: Any) -> str:
    """Return `value` as JSON without white space, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
