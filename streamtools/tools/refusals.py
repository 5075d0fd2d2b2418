"""What a model is told when its arguments do not fit: where and why, and nothing of what was given."""

from __future__ import annotations

from typing import Any

from pydantic_core import ValidationError

_ERRORS_TOLD = 10  # a model corrects the first few and then asks again


def explain(error: ValidationError) -> str:
    """Return what is wrong as `place: reason` pairs, without the values that were given.

    Messages of a user's own validators are repeated as they are: they are written for whoever wrote the input.
    """
    errors = error.errors(include_url=False, include_input=False)
    told = [_told(each) for each in errors[:_ERRORS_TOLD]]
    return "; ".join(told if len(errors) <= _ERRORS_TOLD else [*told, f"and {len(errors) - _ERRORS_TOLD} more"])


def _told(error: Any) -> str:
    reason = error["msg"]
    if error["type"] == "union_tag_invalid":  # the one message of pydantic's own that repeats a value
        reason = f"{error['ctx']['discriminator']} is none of {error['ctx']['expected_tags']}"
    place = ".".join(str(part)[:60] for part in error["loc"])
    return f"{place}: {reason[:200]}" if place else reason[:200]
