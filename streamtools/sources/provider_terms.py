"""Reads the values that providers name differently: finish reasons, usage and errors. Sans-IO.

The adapters of providers use these functions, so that each meaning has one normalized form. Values of an unexpected
type are ignored, as if they were missing.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from streamtools.events import FinishReason, SourceError, Usage
from streamtools.json_values import well_formed

MESSAGE_LENGTH = 500
"""The maximum length of an error message, in characters. Some providers repeat the whole prompt in a message."""

_NO_MESSAGE = "the provider reported an error"

_TERMS: dict[FinishReason, str] = {
    "stop": "stop end_turn stop_sequence completed complete",
    "tool_calls": "tool_calls tool_call tool_use function_call requires_action",
    "length": "length max_tokens max_output_tokens max_messages model_context_window_exceeded budget_exceeded"
    " incomplete"  # sent by Responses if no other reason is known
    " model_length",  # sent by Mistral if the context window is full
    "content_filter": "content_filter refusal error_toxic"
    " guardrail_intervened content_filtered"  # sent by Bedrock
    " safety recitation blocklist prohibited_content spii model_armor"  # this line and the next line are sent by Gemini
    " image_safety image_prohibited_content image_recitation image_other",
    "error": "error failed malformed_function_call malformed_response unexpected_tool_call too_many_tool_calls"
    " missing_thought_signature malformed_model_output malformed_tool_use timeout",
    "pause": "pause_turn compaction steered continuation interrupted requires_continuation",
    "cancelled": "cancelled abort user_cancel",  # vLLM sends "abort", and Cohere "user_cancel"
}
_REASONS = {term: reason for reason, terms in _TERMS.items() for term in terms.split()}


def names(text: str) -> frozenset[str]:
    """Return the names in `text`. Spaces separate the names."""
    return frozenset(text.split())


def _paths(names: str) -> list[list[str]]:
    return [name.split(".") for name in names.split()]


_COUNTS = {
    "input": _paths(
        "prompt_tokens input_tokens inputTokens promptTokens promptTokenCount total_input_tokens prompt_eval_count"
        " tokens.input_tokens billed_units.input_tokens"
    ),
    "output": _paths(
        "completion_tokens output_tokens outputTokens completionTokens candidatesTokenCount total_output_tokens"
        " eval_count tokens.output_tokens billed_units.output_tokens"
    ),
    "total": _paths("total_tokens totalTokens totalTokenCount"),
    "cache_read": _paths(
        "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens cache_read_input_tokens"
        " cachedInputTokens inputTokenDetails.cacheReadTokens cacheReadInputTokens cachedContentTokenCount"
        " total_cached_tokens cached_tokens"
    ),
    "cache_write": _paths(
        "prompt_tokens_details.cache_write_tokens input_tokens_details.cache_write_tokens cache_creation_input_tokens"
        " inputTokenDetails.cacheWriteTokens cacheWriteInputTokens"
    ),
    "reasoning": _paths(
        "completion_tokens_details.reasoning_tokens output_tokens_details.reasoning_tokens"
        " output_tokens_details.thinking_tokens reasoningTokens outputTokenDetails.reasoningTokens"
        " thoughtsTokenCount total_thought_tokens"
    ),
}
"""Maps a field of `Usage` to the names that providers use for it. A dot separates the names of nested objects."""
_FURTHER_COUNTS = {  # added to the counts of Gemini: its input excludes tool results, and its output excludes thoughts
    "input": _paths("toolUsePromptTokenCount total_tool_use_tokens"),
    "output": _paths("thoughtsTokenCount total_thought_tokens"),
}

# Keys of error objects, and attributes of exceptions, in the order in which they are tried.
_MESSAGES = ("message", "error", "errors", "detail", "msg")
_KINDS = ("type", "name", "code", "request_id")  # Anthropic's support requires the id of the request
_BODIES = ("body", "error", "details")  # of SDK exceptions: OpenAI and Anthropic, Ollama, Google
_STATUSES = ("status_code", "statusCode", "code", "status")


_word = re.compile(r"(?!.*(?:sk-|AKIA))[\w.:/-]{1,64}")  # matches a type or a code, but no sentence and no API key
_api_key = re.compile(r"\b(?:sk-|AKIA|Bearer\s+)[\w.*-]{6,}")  # some providers repeat a wrong API key in a message


def finish_reason(raw: str | None) -> FinishReason:
    """Return the normalized finish reason: "stop" if `raw` is empty or None, "other" if it is unknown."""
    return _REASONS.get(raw.lower().replace("-", "_"), "other") if raw else "stop"


def read_usage(value: Any, *, excludes_cache: bool = False) -> Usage | None:
    """Return the usage in `value`, or None.

    With `excludes_cache`, the provider's input count excludes cached tokens, and this function adds them.
    """
    if not isinstance(value, dict):
        return None
    counts = {field: count for field, paths in _COUNTS.items() if (count := _count(value, paths)) is not None}
    for field, paths in _FURTHER_COUNTS.items():
        if (more := _count(value, paths)) is not None:
            counts[field] = counts.get(field, 0) + more
    if excludes_cache and "input" in counts:
        counts["input"] += counts.get("cache_read", 0) + counts.get("cache_write", 0)
    cost = _cost(value.get("cost"))
    if not counts and cost is None:
        return None
    reasoning, total = counts.get("reasoning", 0), counts.get("total")
    if reasoning and total == counts.get("input", 0) + counts.get("output", 0) + reasoning:
        counts["output"] = counts.get("output", 0) + reasoning  # xAI's output count excludes reasoning
    return Usage(**counts, cost=cost)


def shown_url(url: object) -> str | None:
    """Return the host and path of a URL for the log, or None.

    The query and the user info are omitted, because they may hold credentials.
    """
    host, slash, path = re.split("[?#]", str(url).partition("://")[2], maxsplit=1)[0].partition("/")
    shown = host.rpartition("@")[2] + slash + path
    return bounded(shown, 300) or None


def url_of(response: object) -> str | None:
    """Return the host and path of a response's URL, or None."""
    try:
        url = getattr(response, "url", None)
    except RuntimeError:  # httpx raises it for a response without a request
        return None
    return None if url is None else shown_url(url)


def read_fault(value: Any, otherwise: str = _NO_MESSAGE) -> SourceError:
    """Read an error: a text, an object with one of the keys `_MESSAGES`, or a list whose first item is one of these.

    `otherwise` is the message if the provider sent none. The `cause` holds the types and codes of the error and the id
    of the request.
    """
    message, kinds, status, failed = "", [], None, None
    for _ in range(8):  # error objects may be nested; no known provider nests more than eight
        if isinstance(value, list):
            value = value[0] if value else None
        if not isinstance(value, dict):
            break
        kinds += [kind for key in _KINDS if (kind := str(value.get(key) or "")) != "error" and _word.fullmatch(kind)]
        if value.get("code") == "tool_use_failed" and isinstance(text := value.get("failed_generation"), str):
            failed = well_formed(text) or None  # only Groq sends it
        status = next((known for key in _STATUSES if (known := read_status(value.get(key)))), status)
        value = next((value[key] for key in _MESSAGES if value.get(key)), None)
    if isinstance(value, str):
        message = bounded(_api_key.sub("…", value))
    cause = bounded(" ".join(kinds), 200) or None
    return SourceError(message or otherwise, status=status, cause=cause, failed_generation=failed)


def read_status(value: Any) -> int | None:
    """Return the HTTP error status (400 to 599) in `value`, an integer or a string. Returns None for other values."""
    if isinstance(value, str) and len(value) == 3 and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def raised_error(error: Exception) -> SourceError | None:
    """Return the provider's error in an SDK's exception, or None if the exception has no error body and no status."""
    body = next((data for name in _BODIES if isinstance(data := _get(error, name), dict | list | str) and data), None)
    status = read_status(_get(error, "status_code")) or read_status(_get(error, "code"))
    if body is None and status is None:
        return None
    if isinstance(body, str):
        with contextlib.suppress(ValueError, RecursionError):
            body = json.loads(body)
    fault = read_fault(body, "")
    message = fault.message or _get(error, "message")
    message = (bounded(message) if isinstance(message, str) else "") or _NO_MESSAGE
    cause = fault.cause or (None if fault.message else name_of(error))
    return msgspec.structs.replace(fault, message=message, cause=cause, status=status or fault.status)


def name_of(error: Exception) -> str:
    """Return the name of an exception's type, for the log. Its message may contain an API key or a user's text."""
    module = type(error).__module__
    return type(error).__qualname__ if module == "builtins" else f"{module}.{type(error).__qualname__}"


def names_of(error: Exception) -> str:
    """Return the names of an exception and of the operating system's error that caused it, such as a refused port."""
    linked: BaseException | None = error
    while linked is not None:
        if isinstance(linked, OSError) and type(linked) is not OSError and linked is not error:
            return f"{name_of(error)} {name_of(linked)}"
        inner = linked.exceptions[0] if isinstance(linked, BaseExceptionGroup) else None
        linked = inner or linked.__cause__ or linked.__context__
    return name_of(error)


def _get(error: Exception, name: str) -> object:
    with contextlib.suppress(Exception):  # a property of the exception may raise
        return getattr(error, name, None)
    return None


def string(value: Any) -> str | None:
    """Return a non-empty string with lone surrogates replaced. Returns None for anything else."""
    return well_formed(value) if isinstance(value, str) and value else None


def integer(value: Any) -> int | None:
    """Return `value` if it is an integer, else None."""
    return value if isinstance(value, int) else None


def bounded_id(value: Any) -> str | None:
    """Return an id or the name of a model. Returns None if it is empty, longer than 300 characters, or not a string."""
    return well_formed(value) if isinstance(value, str) and 0 < len(value) <= 300 else None


def text_in(value: Mapping[str, Any], *names: str) -> str | None:
    """Return the first value of the keys `names` that is a non-empty string, or None."""
    return next((text for name in names if isinstance(text := value.get(name), str) and text), None)


def object_in(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the value of the key `name` if it is a dict, else an empty dict."""
    return member if isinstance(member := value.get(name), dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    """Return the dicts in a list. Returns an empty list for any other value."""
    return [member for member in value if isinstance(member, dict)] if isinstance(value, list) else []


def text_under(value: Any, *names: str) -> str | None:
    """Return the first non-empty string under one of the keys `names`, or None. `value` has one dict per provider.

    >>> text_under({"google": {"thoughtSignature": "c2ln"}}, "signature", "thoughtSignature")
    'c2ln'
    """
    dicts = [member for member in value.values() if isinstance(member, dict)] if isinstance(value, dict) else []
    return next((text for member in dicts if (text := text_in(member, *names))), None)


def escaped(text: str) -> str:
    """Return `text` escaped for a JSON string, without quotes.

    A lone surrogate is escaped too, so that the halves of a pair that was cut between two deltas form a pair in the
    JSON text.
    """
    try:
        return msgspec.json.encode(text)[1:-1].decode()
    except UnicodeEncodeError:
        return json.dumps(text)[1:-1]


def bounded(text: str, length: int = MESSAGE_LENGTH) -> str:
    """Return `text` on one line, cut to `length` characters. Characters that are not printable become spaces."""
    if not (line := text[: length + 1].strip()).isprintable():
        line = "".join(char if char.isprintable() else " " for char in line).strip()
    return line if len(text) <= length else line[: length - 1] + "…"


def _cost(value: Any) -> float | None:
    """Return the cost of a response, or None. Perplexity sends an object that contains `total_cost`."""
    if isinstance(value, dict):
        value = value.get("total_cost")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 2**53 else None


def _count(value: dict[str, Any], paths: list[list[str]]) -> int | None:
    """Return the first count that is not 0. Returns 0 if all are 0, and None if there is no count.

    Gateways that support two formats send 0 under the names of the other format.
    """
    count = None
    for path in paths:
        found: Any = value
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if isinstance(found, int | float) and not isinstance(found, bool) and 0 <= found < 2**53:
            if found:
                return int(found)
            count = 0
    return count
