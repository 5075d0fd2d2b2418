"""`StoredResponse`: a model whose answer is a response that the provider has stored.

A provider continues a background response after the connection is lost, and sends it again from its beginning. So a
process that continues a lost run can read the rest of an answer. The provider does not charge for the answer again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from streamtools.conversation.models.model import Ask, Model
from streamtools.conversation.models.providers import OpenAIResponses
from streamtools.events import ReasoningDelta, SourceError, SourceEvent, TextDelta
from streamtools.machine.logged_run import LoggedRun


class StoredResponse:
    """The response of `model` with this `id`.

    This is the first model of a `Fallback`. If the provider refuses the request or the response fails, the next model
    continues. The answer omits the text and the reasoning that readers have already seen. `text` and `reasoning` are
    the lengths of both, in characters.
    """

    def __init__(self, model: OpenAIResponses, id: str, text: int, reasoning: int) -> None:
        self.name, self.origin, self.native_tool_calls = model.name, model.origin, model.native_tool_calls
        self.options, self.url, self.body = model.options, model.url, model.body
        self._model, self._id, self._shown = model, id, (text, reasoning)

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Any]:
        async with self._model.stored(self._id) as source:
            yield _unseen(source, *self._shown)


def find_stored(model: Model, logged: LoggedRun, shown: str) -> StoredResponse | None:
    """Return the response of `model` that a crashed process was reading, or None.

    Returns None if the log does not name the response, for example because a rule may redact the text. `shown` is the
    text of the response that readers have seen.
    """
    if not isinstance(model, OpenAIResponses) or not model.native_tool_calls or logged.response_id is None:
        return None
    events = logged.open.source_events() if logged.open is not None else ()
    reasoning = sum(len(event.text) for event in events if isinstance(event, ReasoningDelta))
    return StoredResponse(model, logged.response_id, len(shown), reasoning)


async def _unseen(source: Any, text: int, reasoning: int) -> AsyncGenerator[Sequence[SourceEvent]]:
    """Yield the events of a source without the first characters of its text and its reasoning.

    `text` and `reasoning` are the numbers of these characters. If one of them is not 0, no block of reasoning keeps its
    signature, because a signature is valid only for a whole block.
    """
    is_whole = not (text or reasoning)
    async for batch in source:
        kept: list[SourceEvent] = []
        for event in batch:
            if isinstance(event, SourceError):
                event = replace(event, status=None)  # the next model continues, whatever the status is
            elif isinstance(event, TextDelta):
                event, text = TextDelta(event.text[text:]), max(0, text - len(event.text))
            elif isinstance(event, ReasoningDelta) and not is_whole:
                event, reasoning = ReasoningDelta(event.text[reasoning:]), max(0, reasoning - len(event.text))
            kept.append(event)
        yield kept
