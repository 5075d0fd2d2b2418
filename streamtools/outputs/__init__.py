"""UI events to the wire: encoders for front ends, sans-IO.

Each function returns an `Encoder` for one response. `outputs.asgi`, which sends them, needs the extra `web` and is
imported by its own name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias

from streamtools.events import UIEvent
from streamtools.grammar import Grammar, validate
from streamtools.outputs.ag_ui import AGUIEncoder
from streamtools.outputs.ai_sdk import AISDKEncoder, Target
from streamtools.outputs.encoder import Encoder
from streamtools.outputs.native import HIDDEN, NativeEncoder
from streamtools.outputs.openai import OpenAIEncoder
from streamtools.outputs.text import TextEncoder

__all__ = [
    "FORMATS",
    "Encoder",
    "Format",
    "Grammar",
    "ag_ui",
    "ai_sdk",
    "make_encoder",
    "native",
    "openai",
    "text",
    "validate",
]


def native(*, framing: Literal["sse", "ndjson"] = "sse", exclude: Collection[str] = HIDDEN) -> Encoder:
    """Return an encoder of the events themselves, as JSON.

    `framing` is `"sse"`, where each event carries its type as name and its `seq` as id, or `"ndjson"`. `exclude` names
    types of events that the reader does not get: by default `follow-up`, which holds what the model is told. Raises
    ValueError for a value that is not allowed.
    """
    return NativeEncoder(framing=framing, exclude=exclude)


def ai_sdk(
    target: Target = 7,
    *,
    message_id: str | None = None,
    dynamic: bool | Collection[str] = True,
    progress: Literal["data", "preliminary"] = "data",
    metadata: Mapping[str, Any] | None = None,
    usage: bool = True,
    known_calls: Collection[str] = (),
) -> Encoder:
    """Return an encoder of the AI SDK's UI message stream, which `useChat` reads.

    `target` is the major version of the npm package `ai` that the front end uses: 5, 6 or 7. `message_id` is the id of
    the message that is made; without it the client makes one up. A run that may be resumed needs it, the same for all
    its readers, and so does a server that keeps messages: the id of the request's last message if that is the
    assistant's, which this answer goes on with, and else one of your own, the run's id for instance. `dynamic`: calls
    are parts of the type `dynamic-tool`, which fits any tool; with False, or names that a call's is not among,
    `tool-NAME`, for a front end that has types for it. `progress`: what a tool tells while it works is a part
    `data-tool-progress` (one for each call, the last counts), or a `"preliminary"` output of the call, for tools whose
    progress has the form of their result. `metadata` is that of the message; `usage=False` keeps the tokens of the run
    out of it. `known_calls` are the ids of calls that the message holds already, of a run that resumes another. Raises
    ValueError for a value that is not allowed.
    """
    return AISDKEncoder(
        target,
        message_id=message_id,
        dynamic=dynamic,
        progress=progress,
        metadata=metadata,
        usage=usage,
        known_calls=known_calls,
    )


def ag_ui(
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
    protocol_version: str | None = None,
    known_calls: Collection[str] = (),
    known_results: Collection[str] = (),
) -> Encoder:
    """Return an encoder of AG-UI 1.0.

    `thread_id`, `run_id` and `protocol_version` are those of the request (`threadId`, `runId`, `protocolVersion`).
    Without ids, those of our own run are told; without a version of 1.0 or later, nothing is sent that clients from
    before it would refuse: the calls that are left to the front end or wait for approval by name, the tokens of the
    run, and that it was cancelled (which is an error to them). `known_calls` are the ids of calls that the messages of
    the request hold already, of a run that resumes another, and `known_results` those whose results they hold too: a
    second one would stand beside it.
    """
    return AGUIEncoder(
        thread_id=thread_id,
        run_id=run_id,
        protocol_version=protocol_version,
        known_calls=known_calls,
        known_results=known_results,
    )


def openai(
    *,
    model: str = "streamtools",
    include_usage: bool = False,
    call_deltas: bool = False,
    id: str | None = None,
    created: int | None = None,
    system_fingerprint: str | None = None,
    between_steps: str = "\n\n",
) -> Encoder:
    """Return an encoder of OpenAI's chat completion chunks, in which calls in text have become native ones.

    A client sees the calls that it has to run itself: those that are pending at the end. `call_deltas`: it sees each
    call as it is written, which is for runs whose tools are all the client's, because a call that has been told cannot
    be taken back when it is run here, superseded or forbidden. `include_usage` is that of the request's
    `stream_options`. `id`, `created` (seconds since 1970) and `system_fingerprint` are those of the provider's answer
    or made. The texts of several steps are one, with `between_steps` in between.
    """
    return OpenAIEncoder(
        model=model,
        created=int(time.time()) if created is None else created,
        id=id,
        system_fingerprint=system_fingerprint,
        include_usage=include_usage,
        call_deltas=call_deltas,
        between_steps=between_steps,
    )


def text(*, render: Callable[[UIEvent], str | None] | None = None, between: str = "\n\n") -> Encoder:
    """Return an encoder of the answer's text alone.

    `render` may give words to other events, as `UiTexts().render` does; they and the texts of several steps stand apart
    by `between`.
    """
    return TextEncoder(render=render, between=between)


FORMATS: dict[str, Callable[[], Encoder]] = {
    "native": native,
    "ai_sdk": ai_sdk,
    "ag_ui": ag_ui,
    "openai": openai,
    "text": text,
}
"""What makes the encoder of each format, as it is without options."""

Format: TypeAlias = str | Callable[[], Encoder] | Encoder
"""A format by its name, a function that makes an encoder, or an encoder."""


def make_encoder(format: Format) -> Encoder:
    """Return an encoder for one response. Raises ValueError for a name that is none of a format."""
    if isinstance(format, str):
        if format not in FORMATS:
            raise ValueError(f"format is one of {', '.join(FORMATS)}, or makes an encoder, and not {format!r}")
        return FORMATS[format]()
    return format() if callable(format) else format
