"""What is read off requests, responses and errors of HTTP clients, whichever library they are of."""

from __future__ import annotations

from typing import Any


def is_timeout(error: BaseException) -> bool:
    """Tell whether an exception of Python, or of httpx, httpx2 or httpcore, says that time ran out."""
    return isinstance(error, TimeoutError) or any(kind.__name__ == "TimeoutException" for kind in type(error).__mro__)


def items_of(headers: Any) -> list[tuple[str, str]]:
    """Return headers as pairs, repeated ones too where that can be had."""
    return list(headers.multi_items() if hasattr(headers, "multi_items") else headers.items())
