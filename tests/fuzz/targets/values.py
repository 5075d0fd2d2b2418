"""Growth of the work for continued answers, and for the debugger."""

from __future__ import annotations

import io
import json
from functools import partial
from typing import Any

from streamtools.apps.web.dissection import dissect
from streamtools.conversation.failover_rules import Continuation
from streamtools.conversation.models.prefill_fields import Prefill
from streamtools.recording.files import Chunks, OpenExchange
from streamtools.recording.format import Chunk, ExchangeHead, StreamEnd
from tests.fuzz.growth import LONG, NUMBER, Grammar
from tests.fuzz.target import encode, pieces


def _grow_answer(prefill: Prefill | None, size: int, parts: list[str]) -> None:
    """Continue an answer that begins with all of the shown text, and one that ends with it."""
    text = "".join(parts)
    for shown, answer in ((text, text * 2), (text, text[len(text) // 2 :]), ("x" + text, text)):
        continuation = Continuation(shown, prefill)
        for piece in pieces(answer, size):
            continuation.feed(piece)
        continuation.close()


def _debug(size: int, parts: list[str]) -> None:
    texts = pieces("".join(parts), size)
    frames = [b'data: {"choices":[{"delta":{"content":%b}}]}\n\n' % encode(each) for each in map(json.dumps, texts)]

    def chunks() -> Chunks:
        yield Chunk(0.0, b"".join(frames))
        return StreamEnd("end", 0.0)

    nothing: Any = io.BytesIO()
    dissect(OpenExchange("", ExchangeHead(source="openai"), chunks(), nothing))


GRAMMARS: dict[str, Grammar] = {
    "continuations": Grammar(
        [" ", "\n", "a", "ab", "na na ", "It lies on the Seine. ", NUMBER + " ", LONG],
        [partial(_grow_answer, how, size) for how in (None, Prefill(), Prefill(echoes=True)) for size in (1, 8, 10**9)],
    ),
    "debugger": Grammar(
        ['###:{"name":"f"}', "~~~tool_result f\na\n~~~\n", "`", "</tool_call>", "\n", " ", "漢😀", LONG],
        [partial(_debug, size) for size in (8, 10**9)],
    ),
}
