"""The messages of a provider's request, out of a history: settled, calls in text answered in text, then its format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from streamtools.calls import NATIVE, ToolCall
from streamtools.history.formats import anthropic, gemini, ollama, openai, responses
from streamtools.history.formats.plain import plain
from streamtools.history.messages import Assistant, Message, Unanswered, settle
from streamtools.history.results_in_text import answered_by_user, tell_in_text
from streamtools.parsing.dialects import Dialect

Format: TypeAlias = Literal["openai", "responses", "anthropic", "gemini", "ollama"]

_WRITERS: dict[str, Callable[[Sequence[Message]], list[dict[str, Any]]]] = {
    "openai": openai.write,
    "responses": responses.write,
    "anthropic": anthropic.write,
    "gemini": gemini.write,
    "ollama": ollama.write,
}


def write_behind(
    calls: Sequence[ToolCall],
    history: Sequence[Message],
    format: Format | str,
    *,
    dialects: Sequence[Dialect] = (),
    unanswered: Unanswered = None,
) -> list[dict[str, Any]]:
    """Return the messages of a history that goes on behind a turn with these calls, and begins with what came of them.

    The rules and the errors are those of `write_messages`.
    """
    native = tuple(call for call in calls if call.dialect == NATIVE)
    in_text = tuple(call for call in calls if call.dialect != NATIVE)
    turn = Assistant("".join(call.raw for call in in_text), native, in_text=in_text)
    before = write_messages([turn], format, dialects=dialects, unanswered="leave")
    return write_messages([turn, *history], format, dialects=dialects, unanswered=unanswered)[len(before) :]


def write_messages(
    history: Sequence[Message],
    format: Format | str,
    *,
    dialects: Sequence[Dialect] = (),
    unanswered: Unanswered = None,
) -> list[dict[str, Any]]:
    """Return the messages of a request, which share nothing with the history.

    Answers to calls in text stand in one user message, one block a call, in the form of the call's dialect, which is
    one of `dialects`; there what looks like structure is disarmed. What the user says next follows in the same message.
    `unanswered` says what becomes of calls without an answer; a call in text has one too if a user's message behind it
    holds a result in the form of its dialect. `"anthropic"` and `"gemini"` want the system's words outside of the
    messages: see `system_prompt`.

    Raises ValueError for another format, and as `settle` does; and for a part of a user's message that the provider has
    no place for.
    """
    if format not in _WRITERS:
        raise ValueError(f"messages are written for {', '.join(get_args(Format))}, and not for {format!r}")
    settled = tell_in_text(settle(answered_by_user(history, dialects), unanswered), dialects)
    messages: list[dict[str, Any]] = plain(_WRITERS[format](settled))
    return messages
