"""What writes an answer in the format in which its client has asked. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamtools.calls import IdFactory
from streamtools.gateway.client_requests import Asked, Client
from streamtools.history.messages import fit
from streamtools.logs import Logger
from streamtools.outputs.anthropic_events import AnthropicEncoder
from streamtools.outputs.encoder import Encoder
from streamtools.outputs.openai_chunks import OpenAIEncoder
from streamtools.outputs.responses_events import ResponsesEncoder
from streamtools.outputs.whole_answers import write_fault
from streamtools.sources.adapter import decode
from streamtools.sources.provider_terms import read_fault

_log = Logger(__name__)


def write_refusal(client: Client, status: int, held: bytes) -> bytes:
    """Return an upstream's refusal, as far as it has come, in the client's form."""
    try:
        value = decode(held)
    except ValueError:
        value = None
    _log.warning("upstream_refused", status=status)
    if client == "openai" and isinstance(value, dict) and "error" in value:
        return held
    hint = ": does the URL of the upstream end as it should, with /v1 mostly?" if status == 404 else ""
    return write_fault(client, status, read_fault(value).message or f"the upstream answered with status {status}{hint}")


def encoder_for(
    asked: Asked,
    identity: tuple[str | None, str | None],
    *,
    index: int,
    call_deltas: bool,
    new_id: IdFactory | None,
    now: Callable[[], int] | None,
) -> Encoder:
    """Return the encoder of one choice; `identity` are the upstream's names for the answer and for its model."""
    id, model = identity
    id = id or (new_id() if new_id else None)
    created = now() if now else None
    custom = frozenset(each.name for each in asked.tools if each.custom)
    known: dict[str, Any] = {"model": model or asked.model, "custom": custom, "call_deltas": call_deltas}
    if asked.client == "anthropic":
        return AnthropicEncoder(**known, id=id and f"msg_{fit(id)}")
    if asked.client == "responses":
        return ResponsesEncoder(**known, id=id and fit(id), created=created, request=asked.body)
    include_usage = not index and (asked.include_usage or not asked.streamed)
    return OpenAIEncoder(**known, id=id, created=created, include_usage=include_usage, index=index)
