"""The frames of a provider and their content. The checker counts the sent data by them."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple, Protocol

from benchmarks import texts
from benchmarks.soaking.errands import Errand


class Frame(NamedTuple):
    """A piece of a stream: its bytes, the text or the reasoning in it, the native call that begins or ends with it.

    `closes` is the call whose arguments are all there with it, which is enough where the turn ends then.
    """

    data: bytes
    text: str = ""
    thought: str = ""
    begins: int | None = None
    ends: int | None = None
    closes: int | None = None


class Wire(Protocol):
    """The frames of one provider."""

    declared: str
    finishes: tuple[str, str, str]
    """What it calls an answer that has ended, one that ended with native calls, and one that was cut."""

    def text(self, delta: str) -> list[Frame]: ...
    def thought(self, delta: str) -> list[Frame]: ...
    def call(self, place: int, errand: Errand, rng: random.Random) -> list[Frame]: ...
    def close(self, finish: str) -> list[Frame]: ...
    def error(self) -> bytes: ...
    def garbage(self, rng: random.Random) -> bytes: ...

    def open(self) -> list[Frame]:
        """Return the frames before the answer. `rest` returns those after it."""
        return []

    def rest(self) -> list[Frame]:
        return []


def json_of(value: object) -> str:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def arguments_of(errand: Errand) -> str:
    """Return the arguments as a model writes them. Those of a malformed call are invalid JSON."""
    written = json_of(errand.arguments)
    return written if errand.fate else written.replace(":", "=", 1)


class OpenAI(Wire):
    """Chat completion chunks."""

    declared = "text/event-stream"
    finishes = ("stop", "tool_calls", "length")

    def _frame(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return _data({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices})

    def open(self) -> list[Frame]:
        return [Frame(self._frame({"role": "assistant", "content": ""}))]

    def text(self, delta: str) -> list[Frame]:
        return [Frame(self._frame({"content": delta}), delta)]

    def thought(self, delta: str) -> list[Frame]:
        return [Frame(self._frame({"reasoning_content": delta}), thought=delta)]

    def call(self, place: int, errand: Errand, rng: random.Random) -> list[Frame]:
        def frame(function: dict[str, str], **more: str) -> bytes:
            return self._frame({"tool_calls": [{"index": place, "function": function} | more]})

        begin = frame({"name": errand.name, "arguments": ""}, id=f"call_{place}", type="function")
        pieces = [{"arguments": piece} for piece in _pieces(arguments_of(errand), rng)]
        frames = [Frame(begin, begins=place), *(Frame(frame(piece)) for piece in pieces)]
        return [*frames[:-1], frames[-1]._replace(ends=place)]

    def close(self, finish: str) -> list[Frame]:
        usage = {"prompt_tokens": 31, "completion_tokens": 11, "total_tokens": 42}
        return [
            Frame(self._frame({}, finish)),
            Frame(_data({"choices": [], "usage": usage})),
            Frame(b"data: [DONE]\n\n"),
        ]

    def error(self) -> bytes:
        return _data({"error": {"message": "the engine is tired", "type": "server_error", "code": 500}})

    def garbage(self, rng: random.Random) -> bytes:
        return b"data: {" + _noise(rng) + b"\n\n"


class Anthropic(Wire):
    """Messages with blocks."""

    declared = "text/event-stream"
    finishes = ("end_turn", "tool_use", "max_tokens")

    def __init__(self) -> None:
        self._block = -1
        self._kind = ""

    def _to(self, kind: str, block: dict[str, Any] | None = None) -> bytes:
        """Return the events that end the block and begin a block of another kind."""
        if kind == self._kind and block is None:
            return b""
        events = b""
        if self._kind:
            events += _event({"type": "content_block_stop", "index": self._block})
        self._kind = kind
        if kind:
            self._block += 1
            events += _event({"type": "content_block_start", "index": self._block, "content_block": block})
        return events

    def _delta(self, delta: dict[str, str]) -> bytes:
        return _event({"type": "content_block_delta", "index": self._block, "delta": delta})

    def open(self) -> list[Frame]:
        usage = {"input_tokens": 31, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage}
        return [Frame(_event({"type": "message_start", "message": message})), Frame(_event({"type": "ping"}))]

    def text(self, delta: str) -> list[Frame]:
        head = self._to("text", None if self._kind == "text" else {"type": "text", "text": ""})
        return [Frame(head + self._delta({"type": "text_delta", "text": delta}), delta)]

    def thought(self, delta: str) -> list[Frame]:
        head = self._to("thinking", None if self._kind == "thinking" else {"type": "thinking", "thinking": ""})
        return [Frame(head + self._delta({"type": "thinking_delta", "thinking": delta}), thought=delta)]

    def call(self, place: int, errand: Errand, rng: random.Random) -> list[Frame]:
        block = {"type": "tool_use", "id": f"toolu_{place}", "name": errand.name, "input": {}}
        begin = Frame(self._to("call", block), begins=place)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in _pieces(arguments_of(errand), rng)]
        frames = [begin, *(Frame(self._delta(delta)) for delta in deltas)]
        return [*frames[:-1], frames[-1]._replace(closes=place), Frame(self._to(""), ends=place)]

    def rest(self) -> list[Frame]:
        return [Frame(self._to(""))] if self._kind else []

    def close(self, finish: str) -> list[Frame]:
        end = {"type": "message_delta", "delta": {"stop_reason": finish}, "usage": {"output_tokens": 11}}
        return [Frame(_event(end)), Frame(_event({"type": "message_stop"}))]

    def error(self) -> bytes:
        return _event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

    def garbage(self, rng: random.Random) -> bytes:
        return b"event: content_block_delta\ndata: [" + _noise(rng) + b"\n\n"


class Ollama(Wire):
    """One JSON object in each line."""

    declared = "application/x-ndjson"
    finishes = ("stop", "stop", "length")

    def _line(self, message: dict[str, Any], **more: Any) -> bytes:
        value = {"model": "m", "message": {"role": "assistant", "content": ""} | message, "done": False} | more
        return json_of(value).encode() + b"\n"

    def text(self, delta: str) -> list[Frame]:
        return [Frame(self._line({"content": delta}), delta)]

    def thought(self, delta: str) -> list[Frame]:
        return [Frame(self._line({"thinking": delta}), thought=delta)]

    def call(self, place: int, errand: Errand, rng: random.Random) -> list[Frame]:
        function = {"name": errand.name, "arguments": errand.arguments if errand.fate else arguments_of(errand)}
        return [Frame(self._line({"tool_calls": [{"function": function}]}), begins=place, ends=place)]

    def close(self, finish: str) -> list[Frame]:
        return [Frame(self._line({}, done=True, done_reason=finish, prompt_eval_count=31, eval_count=11))]

    def error(self) -> bytes:
        return json_of({"error": "the runner has gone"}).encode() + b"\n"

    def garbage(self, rng: random.Random) -> bytes:
        return b'{"message": ' + _noise(rng) + b"\n"


class Gemini(Wire):
    """Responses of `streamGenerateContent` with one part each, and CRLF."""

    declared = "text/event-stream"
    finishes = ("STOP", "STOP", "MAX_TOKENS")

    def _frame(self, parts: list[dict[str, Any]], finish: str | None = None) -> bytes:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        counts = {"promptTokenCount": 31, "candidatesTokenCount": 11, "totalTokenCount": 42}
        candidate |= {"finishReason": finish} if finish else {}
        return b"data: " + json_of({"candidates": [candidate], "usageMetadata": counts}).encode() + b"\r\n\r\n"

    def text(self, delta: str) -> list[Frame]:
        return [Frame(self._frame([{"text": delta}]), delta)]

    def thought(self, delta: str) -> list[Frame]:
        return [Frame(self._frame([{"text": delta, "thought": True}]), thought=delta)]

    def call(self, place: int, errand: Errand, rng: random.Random) -> list[Frame]:
        call = {"name": errand.name, "args": errand.arguments if errand.fate else arguments_of(errand)}
        return [Frame(self._frame([{"functionCall": call}]), begins=place, ends=place)]

    def close(self, finish: str) -> list[Frame]:
        return [Frame(self._frame([{"text": ""}], finish))]

    def error(self) -> bytes:
        told = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
        return b"data: " + json_of(told).encode() + b"\r\n\r\n"

    def garbage(self, rng: random.Random) -> bytes:
        return b"data: {" + _noise(rng) + b"\r\n\r\n"


WIRES: dict[str, type[Wire]] = {"openai": OpenAI, "anthropic": Anthropic, "ollama": Ollama, "gemini": Gemini}
"""By the names of the sources that read them."""


def _pieces(text: str, rng: random.Random) -> list[str]:
    return texts.cut(text, max(4, -(-len(text) // rng.randint(1, 12))))


def _noise(rng: random.Random) -> bytes:
    return bytes(byte for byte in rng.randbytes(rng.randint(1, 40)) if byte not in b"\r\n") + b"\xff"


def _data(value: object) -> bytes:
    return b"data: " + json_of(value).encode() + b"\n\n"


def _event(value: dict[str, Any]) -> bytes:
    return b"event: %s\n%s" % (value["type"].encode(), _data(value))
