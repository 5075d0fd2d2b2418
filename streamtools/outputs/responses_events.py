"""Writes a run as one streamed response of OpenAI's Responses API, with items of reasoning, text and calls. Sans-IO.

The response has `store: false`, because it is not stored. Its last event contains the complete response.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection, Mapping
from itertools import count
from typing import Any

from streamtools import events
from streamtools.errors import Code
from streamtools.outputs.model_api import CompletionEncoder, custom_input
from streamtools.outputs.sse import to_json

_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_REQUEST_DEFAULTS: Mapping[str, Any] = {
    **dict.fromkeys(("instructions", "max_output_tokens", "text", "reasoning", "temperature", "top_p", "user")),
    "metadata": {},
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "truncation": "disabled",
}
"""Maps the request fields that a response repeats to their default values."""


class ResponsesEncoder(CompletionEncoder):
    """Writes the streaming events of the Responses API. Calls that the model wrote as text become call items.

    The client receives the calls that are pending at the end of the run. With `call_deltas`, it receives each call
    while the model writes it. Set this only if the client provides all tools, because a call that was sent cannot be
    withdrawn. `custom` holds the names of custom tools, whose input is a text. Their calls are sent when complete.

    `model`, `id` (without the prefix `resp_`) and `created` (seconds since 1970) are fields of the response. If `id` or
    `created` is None, it is generated. A response repeats fields of `request`, the body of the client's request.
    """

    def __init__(
        self,
        *,
        model: str = "streamtools",
        call_deltas: bool = False,
        id: str | None = None,
        created: int | None = None,
        custom: Collection[str] = (),
        request: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(call_deltas=call_deltas, custom=custom)
        token = id or secrets.token_hex(12)
        repeated = {name: (request or {}).get(name, default) for name, default in _REQUEST_DEFAULTS.items()}
        self._response: dict[str, Any] = {
            "id": "resp_" + token,
            "object": "response",
            "status": "in_progress",
            "model": model,
            "created_at": int(time.time()) if created is None else created,
            **dict.fromkeys(("error", "incomplete_details", "usage", "previous_response_id")),
            "output": [],
            "background": False,
            "store": False,
            **repeated,
        }
        self._token = token  # a part of all ids of the response
        self._sequence_numbers = count()
        self._open_item: dict[str, Any] | None = None  # the open text or reasoning; calls are in `_calls`
        self._text_pieces: list[str] = []  # pieces of the text of the open item
        self._item_fields: dict[str, Any] = {}  # fields that identify the open item in its events
        self._text_fields: dict[str, Any] = {}  # further fields of the `delta` and `done` events of the open item
        # Maps the id of each open call to its index in `output` and the pieces of its arguments.
        self._calls: dict[str, tuple[int, list[str]]] = {}

    def _write_start(self) -> bytes:
        created = self._event("response.created", response=self._response)
        return created + self._event("response.in_progress", response=self._response)

    def _event(self, type: str, **members: Any) -> bytes:
        data = {"type": type, "sequence_number": next(self._sequence_numbers), **members}
        return b"event: %b\ndata: %b\n\n" % (type.encode(), to_json(data))

    def _add_item(self, prefix: str, type: str, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Add an item to the response. Returns the item and the bytes of its start."""
        written = self._begin() + self._close_item()
        index = len(self._response["output"])
        item = {"id": f"{prefix}_{self._token}_{index}", "type": type, "status": "in_progress", **fields}
        self._response["output"].append(item)
        return item, written + self._event("response.output_item.added", output_index=index, item=item)

    # Text and reasoning.

    def _write_text(self, text: str) -> bytes:
        return self._write_delta("message", text)

    def _write_reasoning(self, event: events.Reasoning) -> bytes:
        return self._write_delta("reasoning", event.text) if event.text else b""

    def _write_delta(self, type: str, text: str) -> bytes:
        opened = b"" if self._open_item and self._open_item["type"] == type else self._start_item(type)
        self._text_pieces.append(text)
        members = {**self._item_fields, **self._text_fields, "delta": text}
        return opened + self._event(f"response.{_text_kind(type)}.delta", **members)

    def _start_item(self, type: str) -> bytes:
        if type == "message":
            self._open_item, written = self._add_item("msg", type, role="assistant", content=[])
        else:
            self._open_item, written = self._add_item("rs", type, summary=[], content=[])
        self._text_pieces = []
        index = len(self._response["output"]) - 1
        self._item_fields = {"item_id": self._open_item["id"], "output_index": index, "content_index": 0}
        self._text_fields = {"logprobs": []} if type == "message" else {}
        return written + self._event("response.content_part.added", **self._item_fields, part=_part(type, ""))

    def _close_item(self, status: str = "completed") -> bytes:
        if self._open_item is None:
            return b""
        item, self._open_item = self._open_item, None
        type, text = item["type"], "".join(self._text_pieces)
        members = {**self._item_fields, "text": text, **self._text_fields}
        written = self._event(f"response.{_text_kind(type)}.done", **members)
        part = _part(type, text)
        written += self._event("response.content_part.done", **self._item_fields, part=part)
        item["content"] = [part]
        item["status"] = status
        return written + self._event(
            "response.output_item.done", output_index=self._item_fields["output_index"], item=item
        )

    # Calls.

    def _write_call_start(self, call_id: str, name: str, arguments: str) -> bytes:
        if name in self._custom:
            _, written = self._add_item("ctc", "custom_tool_call", call_id=call_id, name=name, input="")
        else:
            _, written = self._add_item("fc", "function_call", call_id=call_id, name=name, arguments="")
        self._calls[call_id] = len(self._response["output"]) - 1, []
        return written + (self._write_arguments(call_id, arguments) if arguments else b"")

    def _write_arguments(self, call_id: str, text: str) -> bytes:
        index, pieces = self._calls[call_id]
        item = self._response["output"][index]
        pieces.append(text)
        is_custom = item["type"] == "custom_tool_call"
        kind = "custom_tool_call_input" if is_custom else "function_call_arguments"
        delta = custom_input(text) if is_custom else text
        return self._event(f"response.{kind}.delta", item_id=item["id"], output_index=index, delta=delta)

    def _write_call_end(self, call_id: str, status: str = "completed") -> bytes:
        index, pieces = self._calls.pop(call_id)
        item, text = self._response["output"][index], "".join(pieces)
        if item["type"] == "custom_tool_call":
            item["input"] = custom_input(text)
            kind, fields = "custom_tool_call_input", {"input": item["input"]}
        else:
            item["arguments"] = text
            kind, fields = "function_call_arguments", {"arguments": text, "name": item["name"]}
        item["status"] = status
        written = self._event(f"response.{kind}.done", item_id=item["id"], output_index=index, **fields)
        return written + self._event("response.output_item.done", output_index=index, item=item)

    # The end.

    def _write_end(self, finish: str) -> bytes:
        reason = _INCOMPLETE_REASONS.get(finish)
        status = "incomplete" if reason else "completed"
        parts = [self._close_item(status)]
        parts += [self._write_call_end(call_id, "incomplete") for call_id in list(self._calls)]
        self._response["status"] = status
        self._response["incomplete_details"] = {"reason": reason} if reason else None
        self._response["usage"] = None if self._usage is None else _write_usage(self._usage)
        return b"".join((*parts, self._event(f"response.{status}", response=self._response)))

    def _write_error(self, code: Code, message: str) -> bytes:
        begun = self._begin() + self._close_item("incomplete")
        for index, pieces in self._calls.values():  # these calls have no event for their end
            self._response["output"][index] |= {"arguments": "".join(pieces), "status": "incomplete"}
        self._response["status"] = "failed"
        self._response["error"] = {"code": "server_error", "message": message}
        return begun + self._event("response.failed", response=self._response)


def _text_kind(item_type: str) -> str:
    return "output_text" if item_type == "message" else "reasoning_text"


def _part(item_type: str, text: str) -> dict[str, Any]:
    members: dict[str, Any] = {"annotations": [], "logprobs": []} if item_type == "message" else {}
    return {"type": _text_kind(item_type), "text": text, **members}


def _write_usage(usage: events.Usage) -> dict[str, Any]:
    prompt, completion = usage.input or 0, usage.output or 0
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read or 0, "cache_write_tokens": usage.cache_write or 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
        "total_tokens": prompt + completion if usage.total is None else usage.total,
    }
