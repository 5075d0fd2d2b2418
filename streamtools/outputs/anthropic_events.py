"""Writes a run as one streamed message of Anthropic's API, with blocks of text, thinking and calls. Sans-IO.

The input of a call must be a JSON object, because clients fail on other text. So a malformed call ends the message with
an error. There is no error if the provider cut the answer, the run was stopped, or the run executes tools and answers
the call itself. With `call_deltas`, only a cut answer prevents the error of a call that was sent in part.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from itertools import count
from typing import Any

from streamtools import events
from streamtools.errors import Code
from streamtools.outputs.model_api import CompletionEncoder
from streamtools.outputs.sse import present, to_json

STOP_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}
"""Maps a finish reason of OpenAI's chat completions to the stop reason of a message."""


class AnthropicEncoder(CompletionEncoder):
    """Writes the streaming events of Anthropic's Messages API. Calls that the model wrote as text become `tool_use`.

    The client receives the calls that are pending at the end of the run. With `call_deltas`, it receives each call
    while the model writes it. Set this only if the client provides all tools, because a call that was sent cannot be
    withdrawn. `model` and `id` are sent in the message. If `id` is None, it is generated. Calls of the tools in
    `custom` are sent when they are complete. Thinking blocks have an empty signature.
    """

    _accepts_invalid_arguments = False

    def __init__(
        self,
        *,
        model: str = "streamtools",
        call_deltas: bool = False,
        id: str | None = None,
        custom: Collection[str] = (),
    ) -> None:
        super().__init__(call_deltas=call_deltas, custom=custom)
        self._model = model
        self._id = id or "msg_" + secrets.token_hex(12)
        self._block_indexes = count()
        self._open_type: str | None = None  # type of the open block; None for a call, or if no block is open
        self._index = 0  # index of the open block
        self._call_blocks: dict[str, int] = {}  # maps the id of each open call to the index of its block

    def _write_start(self) -> bytes:
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _write_usage(events.Usage()),
        }
        return _event("message_start", message=message)

    def _write_text(self, text: str) -> bytes:
        return self._write_delta("text", text)

    def _write_reasoning(self, event: events.Reasoning) -> bytes:
        return self._write_delta("thinking", event.text) if event.text and not event.redacted else b""

    def _write_delta(self, type: str, text: str) -> bytes:
        opened = b"" if self._open_type == type else self._open_block(type)
        return opened + _event("content_block_delta", index=self._index, delta={"type": f"{type}_delta", type: text})

    def _write_call_start(self, call_id: str, name: str, arguments: str) -> bytes:
        written = self._begin() + self._close_block()
        self._call_blocks[call_id] = index = next(self._block_indexes)
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        written += _event("content_block_start", index=index, content_block=block)
        return written + (self._write_arguments(call_id, arguments) if arguments else b"")

    def _write_arguments(self, call_id: str, text: str) -> bytes:
        delta = {"type": "input_json_delta", "partial_json": text}
        return _event("content_block_delta", index=self._call_blocks[call_id], delta=delta)

    def _write_call_end(self, call_id: str) -> bytes:
        return _event("content_block_stop", index=self._call_blocks.pop(call_id))

    def _write_end(self, finish: str) -> bytes:
        parts = [self._close_block(), *map(self._write_call_end, list(self._call_blocks))]
        delta = {"stop_reason": STOP_REASONS[finish], "stop_sequence": None}
        parts.append(_event("message_delta", delta=delta, usage=_write_usage(self._usage or events.Usage())))
        return b"".join((*parts, _event("message_stop")))

    def _write_error(self, code: Code, message: str) -> bytes:
        return _event("error", error={"type": "api_error", "message": message})

    def _open_block(self, type: str) -> bytes:
        written = self._begin() + self._close_block()
        self._open_type = type
        self._index = index = next(self._block_indexes)
        block = {"type": type, type: "", **({"signature": ""} if type == "thinking" else {})}
        return written + _event("content_block_start", index=index, content_block=block)

    def _close_block(self) -> bytes:
        if self._open_type is None:
            return b""
        self._open_type = None
        return _event("content_block_stop", index=self._index)


def _event(type: str, **members: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (type.encode(), to_json({"type": type, **members}))


def _write_usage(usage: events.Usage) -> dict[str, Any]:
    cached = (usage.cache_read or 0) + (usage.cache_write or 0)
    return {
        **present(cache_read_input_tokens=usage.cache_read, cache_creation_input_tokens=usage.cache_write),
        "input_tokens": max(0, (usage.input or 0) - cached),
        "output_tokens": usage.output or 0,
    }
