"""What all providers say, each in words of its own: why a turn ended, what it cost, what went wrong.

The adapters look words up here, so that one meaning has one spelling downstream. Nothing in this module trusts a
shape: values of an unexpected type count as not sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from streamtools.events import FinishReason, SourceError, Usage
from streamtools.surrogates import whole

MESSAGE_LENGTH = 500
"""Characters of a provider's message that are shown; some echo the whole prompt."""

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "completed": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_messages": "length",
    "incomplete": "length",  # Responses: it does not tell why
    "model_length": "length",  # Mistral: the context window is full
    "model_context_window_exceeded": "length",
    "content_filter": "content_filter",
    "refusal": "content_filter",
    "safety": "content_filter",  # Gemini, as are the following
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
    "image_safety": "content_filter",
    "image_prohibited_content": "content_filter",
    "image_recitation": "content_filter",
    "image_other": "content_filter",
    "model_armor": "content_filter",
    "error": "error",
    "failed": "error",
    "malformed_function_call": "error",
    "malformed_response": "error",
    "unexpected_tool_call": "error",
    "too_many_tool_calls": "error",
    "missing_thought_signature": "error",
    "pause_turn": "pause",
    "compaction": "pause",
    "steered": "pause",
    "continuation": "pause",
    "interrupted": "pause",
    "cancelled": "cancelled",
    "abort": "cancelled",  # vLLM
}

_MESSAGES = ("message", "error", "errors", "detail", "msg")
_KINDS = ("type", "name", "code")
_STATUSES = ("status_code", "statusCode", "code", "status")


_word = re.compile(r"(?!.*(?:sk-|AKIA))[\w.:/-]{1,64}")  # a type or a code, and no sentence
_key = re.compile(r"\b(?:sk-|AKIA|Bearer\s+)[\w.*-]{6,}")  # which some providers repeat when it is wrong


def finish_reason(raw: str | None) -> FinishReason:
    """Return the normalised reason; a turn that ended without naming one has stopped."""
    return _REASONS.get(raw.lower().replace("-", "_"), "other") if raw else "stop"


def read_usage(value: Any, table: Mapping[str, tuple[str, ...]]) -> Usage | None:
    """Return the usage that `value` holds; `table` lists under which keys, dotted where nested, each field stands."""
    if not isinstance(value, dict):
        return None
    counts = {field: count for field, paths in table.items() if (count := _count(value, paths)) is not None}
    if not counts:
        return None
    reasoning, total = counts.get("reasoning", 0), counts.get("total")
    if reasoning and total == counts.get("input", 0) + counts.get("output", 0) + reasoning:
        counts["output"] = counts.get("output", 0) + reasoning  # xAI counts reasoning apart; ours includes it
    return Usage(**counts)


def shown_url(url: object) -> str | None:
    """Return the host and the path of a URL, for the log, or None; a query or a user may be a credential."""
    host, slash, path = re.split("[?#]", str(url).partition("://")[2], maxsplit=1)[0].partition("/")
    shown = host.rpartition("@")[2] + slash + path
    return bounded(shown, 300) or None


def url_of(response: object) -> str | None:
    """Return what a response says that was asked, as `shown_url` does, or None where it does not say."""
    try:
        url = getattr(response, "url", None)
    except RuntimeError:  # of httpx, where a response was made by hand
        return None
    return None if url is None else shown_url(url)


class Fault(NamedTuple):
    """What a provider reports as an error. `kind` holds its types and codes: for the log, not for a reader."""

    message: str
    kind: str
    status: int | None
    failed_generation: str | None = None
    """What the model wrote, whole, where the provider refused to read a call in it."""

    def event(self, otherwise: str = "the provider reported an error") -> SourceError:
        """Return the error event, with the message `otherwise` where the provider gives none."""
        return SourceError(
            self.message or otherwise,
            status=self.status,
            cause=self.kind or None,
            failed_generation=self.failed_generation,
        )


def read_fault(value: Any) -> Fault:
    """Return what is told in any of the usual shapes: a text, `{error: …}`, `{message}`, `{detail}`, a list of them."""
    message, kinds, status, failed = "", [], None, None
    for _ in range(8):  # errors nest, but never for long
        if isinstance(value, list):
            value = value[0] if value else None
        if not isinstance(value, dict):
            break
        kinds += [kind for key in _KINDS if (kind := str(value.get(key) or "")) != "error" and _word.fullmatch(kind)]
        if value.get("code") == "tool_use_failed" and isinstance(written := value.get("failed_generation"), str):
            failed = whole(written) or None  # Groq
        status = next((known for key in _STATUSES if (known := read_status(value.get(key)))), status)
        value = next((value[key] for key in _MESSAGES if value.get(key)), None)
    if isinstance(value, str):
        message = bounded(_key.sub("…", value))
    return Fault(message, bounded(" ".join(kinds), 200), status, failed)


def read_status(value: Any) -> int | None:
    """Return an HTTP status of an error, which may be written as a string; other codes are none."""
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def string(value: Any) -> str | None:
    """Return a string that is not empty as what UTF-8 can hold, and None for anything else."""
    return whole(value) if isinstance(value, str) and value else None


def bounded(text: str, length: int = MESSAGE_LENGTH) -> str:
    """Return at most `length` characters of `text`, on one line and without control characters."""
    line = "".join(each if each.isprintable() else " " for each in text[: length + 1]).strip()
    return line if len(text) <= length else line[: length - 1] + "…"


def _count(value: dict[str, Any], paths: tuple[str, ...]) -> int | None:
    for path in paths:
        found: Any = value
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 2**53:
            return int(found)
    return None
