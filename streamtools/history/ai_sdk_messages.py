"""Reads the UIMessages of the AI SDK (versions 5, 6 and 7) that `useChat` posts.

A message is a list of parts, in order. A part `step-start` starts a step. The texts, reasoning and tool parts of a step
are one turn of the model. A tool part holds a call and its result.

All content comes from a client and is not trusted. An approval in a message decides nothing, because decisions are
checked against the suspension that the server stores. The result of a denied call contains the reason in its approval.
Calls that the provider executed are ignored. Data, sources and files in assistant messages are for the interface, so
they are ignored, too.

Source: the packages `ai` 5.0.277, 6.0.326 and 7.0.173 (`ui-messages`, `convert-to-model-messages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtools.calls import NATIVE, ToolCall
from streamtools.history.content import part_of_url, signed_or_encrypted, string_at
from streamtools.history.history_reader import HistoryReader, TurnDraft, read_call
from streamtools.history.pairing import NO_RESULT
from streamtools.history.parts import CallResult, ProviderItem, Thought, User, fault_of
from streamtools.json_values import ARRAY, OBJECT, fits, json_text
from streamtools.limits import DEFAULT_LIMITS

_ROLES = ("system", "user", "assistant")
# Maps the name of a provider in the AI SDK to its message format.
_FORMATS = {name: name for name in ("anthropic", "bedrock", "interactions", "cohere", "ollama")}
_FORMATS |= {"openai": "responses", "azure": "responses", "google": "gemini", "vertex": "gemini"}
_FORMATS |= {"openaiCompatible": "openai", "openrouter": "openai"}


def is_message(message: Mapping[str, Any]) -> bool:
    """Return whether a message has this format: its parts have a `type`. The parts of Gemini have none."""
    parts = message.get("parts")
    if not isinstance(parts, ARRAY) or message.get("role") not in _ROLES:
        return False
    typed = any(isinstance(part, OBJECT) and isinstance(part.get("type"), str) for part in parts)
    return typed or (not parts and "id" in message)


def read(message: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add a message to the history of `reader`. Raises ValueError for a system message that is not allowed."""
    parts = [part for part in message["parts"] if isinstance(part, OBJECT)]
    role = message["role"]
    if role == "system":
        reader.add_system("".join(string_at(part, "text") for part in parts if part.get("type") == "text"))
    elif role == "user":
        content = [part for part in map(_user_part, parts) if part is not None]
        only = content[0].get("text") if len(content) == 1 and content[0]["type"] == "text" else None
        reader.add_message(User(only if isinstance(only, str) else content))
    else:
        step = _UIStep(reader)
        for part in parts:
            if part.get("type") != "step-start":
                step.read(part)
            elif step.end():
                step = _UIStep(reader)
        step.end()


def _user_part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a part of a user message for the model, or None for a part that only the interface uses."""
    if part.get("type") == "text":
        return {"type": "text", "text": string_at(part, "text")}
    url = string_at(part, "url") if part.get("type") == "file" else ""
    return part_of_url(url, string_at(part, "mediaType"), string_at(part, "filename")) if url else None


class _UIStep:
    """Reads one step of an assistant message: a turn, and the results of its calls."""

    def __init__(self, reader: HistoryReader) -> None:
        self._reader = reader
        self._turn = TurnDraft(reader.index, reader.budget, client=True)
        self._results: list[CallResult] = []
        self._ids: set[str] = set()

    def read(self, part: Mapping[str, Any]) -> None:
        kind = string_at(part, "type")
        if kind == "text":
            format, data = self._metadata(part, "providerMetadata")
            self._turn.add_text(string_at(part, "text"), data if format == "gemini" else None)
        elif kind == "reasoning":
            self._read_reasoning(part)
        elif kind.startswith("tool-") or kind == "dynamic-tool":
            name = string_at(part, "toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
            self._read_call(name, part)

    def end(self) -> bool:
        """Add the step to the history, unless it is empty. Returns whether it was added."""
        if not self._turn.parts:
            return False
        self._reader.add_turn(self._turn.finish())
        for result in self._results:
            self._reader.add_native_result(None, result.call_id, result.text, {}, is_error=result.is_error)
        return True

    def _read_reasoning(self, part: Mapping[str, Any]) -> None:
        text = string_at(part, "text")
        format, data = self._metadata(part, "providerMetadata")
        if hidden := string_at(data, "redactedData"):
            self._turn.add_thought("", hidden, redacted=True)
        elif entries := signed_or_encrypted(data.get("reasoning_details")) if format == "openai" else []:
            self._turn.parts.append(Thought(text, extra=ProviderItem("openai", {"reasoning_details": entries})))
        elif format == "responses":
            self._turn.add_thought(
                text, string_at(data, "reasoningEncryptedContent"), string_at(data, "itemId") or None
            )
        else:
            self._turn.add_thought(text, string_at(data, "signature") or string_at(data, "thoughtSignature"))

    def _metadata(self, part: Mapping[str, Any], name: str) -> tuple[str | None, Mapping[str, Any]]:
        """Return the format of the turn's provider, and the metadata of this provider in the field `name`."""
        metadata = part.get(name)
        for provider, data in metadata.items() if isinstance(metadata, OBJECT) else ():
            if isinstance(data, OBJECT) and (format := _FORMATS.get(provider)) and self._turn.claim_format(format):
                return format, data
        return None, {}

    def _read_call(self, name: str, part: Mapping[str, Any]) -> None:
        state, id = string_at(part, "state"), string_at(part, "toolCallId")
        if state == "input-streaming" or not id or id in self._ids or part.get("providerExecuted") is True:
            return
        self._ids.add(id)
        _, data = self._metadata(part, "callProviderMetadata")
        written = part.get("input") if part.get("input") is not None else part.get("rawInput")
        signature = string_at(data, "thoughtSignature") or None
        call = read_call({"name": name, "input": written}, id, id, self._reader.budget, signature=signature)
        self._turn.parts.append(call)
        if (result := _result(call, state, part)) is not None:
            self._results.append(result)


def _result(call: ToolCall, state: str, part: Mapping[str, Any]) -> CallResult | None:
    """Return the result of a call, or None if it has no result yet. An approved call has none until it has run."""
    if state == "output-available" and part.get("preliminary") is not True:
        output = part.get("output")
        if not isinstance(output, str):
            output = json_text(output) if fits(output, DEFAULT_LIMITS.depth) else "{}"
        return CallResult(NATIVE, call.name, output, call.id)
    if state == "output-error":
        text = string_at(part, "errorText") or fault_of(call) or NO_RESULT
    elif state == "output-denied":
        reason = string_at(part.get("approval"), "reason")
        text = f"the call of tool {call.name!r} was denied{f': {reason}' if reason else ''}"  # as in tools/runner.py
    else:
        return None
    return CallResult(NATIVE, call.name, text, call.id, is_error=True)
