"""Chat completion chunks, and the source events that the adapter returns for them."""

from __future__ import annotations

import json
from typing import Any

from streamtools.events import ProviderCompleted, SourceEvent, Usage
from streamtools.limits import Limits
from streamtools.sources.wire_formats.openai import ChatCompletions

DONE = b"data: [DONE]\n\n"


def read(*chunks: bytes, limits: Limits | None = None) -> list[SourceEvent]:
    adapter = ChatCompletions(limits) if limits else ChatCompletions()
    return [event for chunk in chunks for event in adapter.feed(chunk)] + adapter.close()


def sse(value: Any, event: str | None = None) -> bytes:
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {event}\n" if event else "").encode() + f"data: {data}\n\n".encode()


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    return sse({"choices": [{"index": index, "delta": delta or {}, "finish_reason": finish}], **more})


def stop(reason: str = "stop", usage: Usage | None = None) -> ProviderCompleted:
    return ProviderCompleted(finish_reason=reason, raw_finish_reason=reason, usage=usage)  # type: ignore[arg-type]
