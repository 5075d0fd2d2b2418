"""Writes a run as one streamed chat completion of OpenAI. Calls in text become native calls. Sans-IO."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from typing import Any

from streamtools import events
from streamtools.errors import Code
from streamtools.outputs.model_api import CompletionEncoder, custom_input
from streamtools.outputs.sse import DONE, encode_json, present, to_json


class OpenAIEncoder(CompletionEncoder):
    """Writes OpenAI's chat completion chunks. Calls that the model wrote as text become native calls.

    The client receives the calls that it must run: the calls that are pending at the end of the run. With
    `call_deltas`, it receives each call while the model writes it. Set this only if the client provides all tools. A
    call that was sent cannot be withdrawn if the run executes it, supersedes it or forbids it.

    `model`, `id` and `created` (seconds since 1970) are sent with each chunk. If `id` or `created` is None, it is
    generated. `include_usage` is the field `include_usage` of the request's `stream_options`. `custom` holds the names
    of custom tools, whose input is a text. Their calls are sent when they are complete. The texts of several steps
    become one text, with blank lines between them.
    """

    def __init__(
        self,
        *,
        model: str = "streamtools",
        include_usage: bool = False,
        call_deltas: bool = False,
        id: str | None = None,
        created: int | None = None,
        custom: Collection[str] = (),
    ) -> None:
        super().__init__(call_deltas=call_deltas, custom=custom)
        self._head: dict[str, Any] = {
            "id": id or "chatcmpl-" + secrets.token_urlsafe(18),
            "object": "chat.completion.chunk",
            "created": int(time.time()) if created is None else created,
            "model": model,
        }
        self._prefix = b"data: " + to_json(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        # The schema requires `finish_reason` in each choice, even if it is null.
        self._suffix = b',"finish_reason":null}]}\n\n'
        self._include_usage = include_usage

    def _write_start(self) -> bytes:
        return self._write_delta({"role": "assistant", "content": ""})

    def _write_delta(self, delta: dict[str, Any]) -> bytes:
        return self._begin() + self._prefix + to_json(delta) + self._suffix

    def _write_text(self, text: str) -> bytes:
        return self._write_delta({"content": text})

    def _write_reasoning(self, event: events.Reasoning) -> bytes:
        return self._write_delta({"reasoning_content": event.text}) if event.text else b""

    def _write_call_start(self, call_id: str, name: str, arguments: str) -> bytes:
        call: dict[str, Any] = {"index": self._indexes[call_id], "id": call_id, "type": "function"}
        call["function"] = {"name": name, "arguments": arguments}
        if name in self._custom:
            call = {**call, "type": "custom", "custom": {"name": name, "input": custom_input(arguments)}}
            del call["function"]
        return self._write_delta({"tool_calls": [call]})

    def _write_arguments(self, call_id: str, text: str) -> bytes:
        return self._write_delta({"tool_calls": [{"index": self._indexes[call_id], "function": {"arguments": text}}]})

    def _write_end(self, finish: str) -> bytes:
        choice = {"index": 0, "delta": {}, "finish_reason": finish}
        parts = [encode_json({**self._head, "choices": [choice]})]
        if self._include_usage and self._usage is not None:
            parts.append(encode_json({**self._head, "choices": [], "usage": _write_usage(self._usage)}))
        return b"".join((*parts, DONE))

    def _write_error(self, code: Code, message: str) -> bytes:
        return encode_json({"error": {"message": message, "type": "server_error", "code": code.value}})


def _write_usage(usage: events.Usage) -> dict[str, Any]:
    prompt, completion = usage.input or 0, usage.output or 0
    cache = present(cached_tokens=usage.cache_read, cache_write_tokens=usage.cache_write)
    reasoning = present(reasoning_tokens=usage.reasoning)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion if usage.total is None else usage.total,
        **present(prompt_tokens_details=cache or None, completion_tokens_details=reasoning or None),
    }
