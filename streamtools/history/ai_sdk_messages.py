"""UIMessages of the AI SDK (versions 5, 6 and 7), as `useChat` posts them: each is a list of parts, in order.

A step begins with a part `step-start`; its texts, reasoning and tool parts are one turn of the model, with the results
beside their calls. All of it is a client's: an approval in it decides nothing, as the answer to a question goes by the
suspension that the server keeps; tools that the provider ran are left out; what is for the interface alone (data,
sources, files that the model has made) is no part of a history.

Source: the packages `ai` 5.0.277, 6.0.326 and 7.0.173 (`ui-messages`, `convert-to-model-messages`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtools.calls import NATIVE, ToolCall
from streamtools.history.content import encrypted, given
from streamtools.history.history_reader import HistoryReader, TurnDraft, read_call
from streamtools.history.messages import NOT_RUN
from streamtools.history.parts import CallResult, ProviderItem, Thought, User, fault_of
from streamtools.json_values import compact, fits, writable
from streamtools.limits import DEFAULT_LIMITS

_ROLES = ("system", "user", "assistant")
_BEGUN = ("input-streaming", "partial-call")  # of version 4, too: a call that was never whole
_FORMATS = {each: each for each in ("anthropic", "bedrock", "interactions", "cohere", "ollama")}
_FORMATS |= {"openai": "responses", "azure": "responses", "google": "gemini", "vertex": "gemini"}
_FORMATS |= {"openaiCompatible": "openai", "openrouter": "openai"}


def is_one(message: Mapping[str, Any]) -> bool:
    """Return whether a message is one of these: its parts have types, which Gemini's have not."""
    parts = message.get("parts")
    if not isinstance(parts, list | tuple) or message.get("role") not in _ROLES:
        return False
    typed = any(isinstance(each, Mapping) and isinstance(each.get("type"), str) for each in parts)
    return typed or (not parts and "id" in message)


def read(message: Mapping[str, Any], reader: HistoryReader) -> None:
    """Add what a message says. Raises ValueError for words of the system's that are not allowed."""
    parts = [each for each in message["parts"] if isinstance(each, Mapping)]
    role = message["role"]
    if role == "system":
        reader.instruct("".join(given(each, "text") for each in parts if each.get("type") == "text"))
    elif role == "user":
        heard = [each for each in map(_user_part, parts) if each is not None]
        only = heard[0].get("text") if len(heard) == 1 and heard[0]["type"] == "text" else None
        reader.hear(User(only if isinstance(only, str) else heard))
    else:
        step = _Step(reader)
        for part in parts:
            if part.get("type") == "step-start":
                step.end()
                step = _Step(reader)
            step.read(part)
        step.end()


def _user_part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the model may see of a part; data and sources are for the interface."""
    if part.get("type") == "text":
        return {"type": "text", "text": given(part, "text")}
    url, kind = given(part, "url"), given(part, "mediaType") or given(part, "mimeType")
    if part.get("type") != "file" or not url:
        return None
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    named = {"filename": name} if (name := given(part, "filename")) else {}
    if url.startswith("data:"):
        return {"type": "file", "file": {**named, "file_data": url}}
    return {"type": "text", "text": f"[{given(part, 'filename') or kind}: {url}]"}  # whom the model may ask a tool for


class _Step:
    """The step of a message that is being read."""

    def __init__(self, reader: HistoryReader) -> None:
        self._reader = reader
        self._said = TurnDraft(reader.place, reader.budget, client=True)
        self._results: list[CallResult] = []
        self._ids: set[str] = set()

    def read(self, part: Mapping[str, Any]) -> None:
        kind = given(part, "type")
        if kind == "text":
            format, held = self._metadata(part, "providerMetadata")
            self._said.add_text(given(part, "text"), held if format == "gemini" else None)
        elif kind == "reasoning":
            self._think(part)
        elif kind.startswith("tool-") or kind == "dynamic-tool":
            name = given(part, "toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
            invocation = part.get("toolInvocation")  # of version 4
            if isinstance(invocation, Mapping):
                name, part = given(invocation, "toolName"), {"input": invocation.get("args"), **invocation}
            self._call(name, part)

    def end(self) -> None:
        """Add the step to the history."""
        if self._said.parts:
            self._reader.say(self._said.close())
            for result in self._results:
                self._reader.add(result)

    def _think(self, part: Mapping[str, Any]) -> None:
        text = given(part, "text") or given(part, "reasoning")
        format, held = self._metadata(part, "providerMetadata")
        if hidden := given(held, "redactedData"):
            self._said.add_thought("", hidden, redacted=True)
        elif entries := encrypted(held.get("reasoning_details")) if format == "openai" else []:
            self._said.parts.append(Thought(text, own=ProviderItem("openai", {"reasoning_details": entries})))
        elif format == "responses":
            self._said.add_thought(text, given(held, "reasoningEncryptedContent"), given(held, "itemId") or None)
        else:
            self._said.add_thought(text, given(held, "signature") or given(held, "thoughtSignature"))

    def _metadata(self, part: Mapping[str, Any], name: str) -> tuple[str | None, Mapping[str, Any]]:
        """Return what a provider has put beside a part; the first is the turn's, and others count for nothing in it."""
        metadata = part.get(name)
        for provider, held in metadata.items() if isinstance(metadata, Mapping) else ():
            if isinstance(held, Mapping) and (format := _FORMATS.get(provider)) and self._said.is_of(format):
                return format, held
        return None, {}

    def _call(self, name: str, part: Mapping[str, Any]) -> None:
        state, id = given(part, "state"), given(part, "toolCallId")
        if state in _BEGUN or not id or id in self._ids or part.get("providerExecuted") is True:
            return
        self._ids.add(id)
        _, held = self._metadata(part, "callProviderMetadata")
        written = part.get("input") if part.get("input") is not None else part.get("rawInput")
        signature = given(held, "thoughtSignature") or None
        call = read_call({"name": name, "input": written}, id, id, self._reader.budget, signature=signature)
        self._said.parts.append(call)
        if (result := _result(call, state, part)) is not None:
            self._results.append(result)


def _result(call: ToolCall, state: str, part: Mapping[str, Any]) -> CallResult | None:
    """Return what became of a call; None if nobody has run it, whoever may have allowed it."""
    approval = part.get("approval")
    if state in ("output-available", "result") and part.get("preliminary") is not True:
        output = part.get("output", part.get("result"))
        if not isinstance(output, str):
            output = compact(writable(output)) if fits(output, DEFAULT_LIMITS.depth) else "{}"
        return CallResult(NATIVE, call.name, output, call.id)
    if state == "output-error":
        text = given(part, "errorText") or fault_of(call) or NOT_RUN
    elif state == "output-denied":
        reason = given(approval, "reason")
        text = f"the call of tool {call.name!r} was denied{f': {reason}' if reason else ''}"  # as the runner says it
    else:
        return None
    return CallResult(NATIVE, call.name, text, call.id, is_error=True)
