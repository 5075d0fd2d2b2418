"""A run as one chat completion of OpenAI's, streamed: any client reads it, whatever way of calling the model has."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping
from typing import Any

from streamtools import events
from streamtools.errors import Code
from streamtools.outputs.encoder import DONE, encode_json, present, to_json
from streamtools.outputs.model_answers import CompletionEncoder, input_in


class OpenAIEncoder(CompletionEncoder):
    """Writes OpenAI's chat completion chunks, in which calls in text have become native ones.

    A client sees the calls that it has to run itself: those that are pending at the end. `call_deltas`: it sees each
    call as it is written, which is for runs whose tools are all the client's, because a call that has been sent cannot
    be taken back when it is run here, superseded or forbidden. `include_usage` is that of the request's
    `stream_options`. `id`, `created` (seconds since 1970) and `system_fingerprint` are those of the provider's answer
    or made. `custom` names tools that take a text of any form: their calls are sent when they are whole. The
    texts of several steps are one, with a blank line in between.
    """

    def __init__(
        self,
        *,
        model: str = "streamtools",
        include_usage: bool = False,
        call_deltas: bool = False,
        id: str | None = None,
        created: int | None = None,
        system_fingerprint: str | None = None,
        custom: Collection[str] = (),
    ) -> None:
        super().__init__(call_deltas=call_deltas, custom=custom)
        self._head: dict[str, Any] = {
            "id": id or "chatcmpl-" + secrets.token_urlsafe(18),
            "object": "chat.completion.chunk",
            "created": int(time.time()) if created is None else created,
            "model": model,
            **present(system_fingerprint=system_fingerprint),
        }
        self._before = b"data: " + to_json(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        # `finish_reason` is the one member that the schema wants in each choice, also where it is null.
        self._behind = b',"finish_reason":null}]}\n\n'
        self._before_text, self._behind_text = self._before + b'{"content":', b"}" + self._behind
        self._include_usage = include_usage

    def write_logprobs(self, logprobs: Mapping[str, Any]) -> bytes:
        """Return the chunk that holds log probabilities of the text before it."""
        choice = {"index": 0, "delta": {}, "logprobs": logprobs, "finish_reason": None}
        return self._begin() + encode_json({**self._head, "choices": [choice]})

    def _write_start(self) -> bytes:
        return self._write({"role": "assistant", "content": ""})

    def _write(self, delta: dict[str, Any]) -> bytes:
        return self._begin() + self._before + to_json(delta) + self._behind

    def _write_text(self, text: str) -> bytes:
        written = self._before_text + to_json(text) + self._behind_text
        return written if self._begun else self._begin() + written

    def _write_reasoning(self, event: events.Reasoning) -> bytes:
        return self._write({"reasoning_content": event.text}) if event.text else b""

    def _write_call_start(self, call_id: str, name: str, arguments: str) -> bytes:
        call: dict[str, Any] = {"index": self._indexes[call_id], "id": call_id, "type": "function"}
        call["function"] = {"name": name, "arguments": arguments}
        if name in self._custom:
            call = {**call, "type": "custom", "custom": {"name": name, "input": input_in(arguments)}}
            del call["function"]
        return self._write({"tool_calls": [call]})

    def _write_arguments(self, call_id: str, text: str) -> bytes:
        return self._write({"tool_calls": [{"index": self._indexes[call_id], "function": {"arguments": text}}]})

    def _write_end(self, finish: str) -> bytes:
        choice = {"index": 0, "delta": {}, "finish_reason": finish}
        parts = [encode_json({**self._head, "choices": [choice]})]
        if self._include_usage and self._usage is not None:
            parts.append(encode_json({**self._head, "choices": [], "usage": _write_usage(self._usage)}))
        return b"".join((*parts, DONE))

    def _write_error(self, code: Code, message: str) -> bytes:
        return encode_json({"error": {"message": message, "type": "server_error", "code": code.value}})


def _write_usage(usage: events.Usage) -> dict[str, Any]:
    given, made = usage.input or 0, usage.output or 0
    cache = present(cached_tokens=usage.cache_read, cache_write_tokens=usage.cache_write)
    thought = present(reasoning_tokens=usage.reasoning)
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made if usage.total is None else usage.total,
        **present(prompt_tokens_details=cache or None, completion_tokens_details=thought or None),
    }
