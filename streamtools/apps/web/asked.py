"""What the page posts: questions with their images, and decisions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from starlette.exceptions import HTTPException

from streamtools.events import ApprovalRequested, read_ui_event
from streamtools.history import User

MAX_QUESTION = 100_000
"""Characters of a question."""

MAX_IMAGES = 8
"""Images of a question, which share the body of its request with it."""

MAX_KEPT_IMAGES = 2 * 1024 * 1024
"""Characters of all images of a conversation, each of which goes to the model with every question."""

_IMAGE = re.compile(r"data:image/(?:gif|jpeg|png|webp);base64,[A-Za-z0-9+/]++={0,2}")


class QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    question: str | None = None
    suggestion: str | None = None
    images: Sequence[str] = ()
    replace: str | None = None
    conversation: str | msgspec.UnsetType | None = msgspec.UNSET
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None


class DecisionBody(msgspec.Struct, forbid_unknown_fields=True):
    approve: bool | None = None
    shown: str = ""
    reason: str = ""
    result: Any = msgspec.UNSET
    error: str | None = None


def check_images(images: Sequence[str], before: Sequence[str]) -> None:
    """Refuse images that are none, or too many behind those of `before` in the conversation."""
    if len(images) > MAX_IMAGES:
        raise HTTPException(413, f"a question may have {MAX_IMAGES} images")
    if not all(map(_IMAGE.fullmatch, images)):
        raise HTTPException(400, "an image is a GIF, a JPEG, a PNG or a WebP, written out in Base64")
    if images and sum(map(len, (*before, *images))) > MAX_KEPT_IMAGES:
        raise HTTPException(413, "this conversation has as many images as it may have: begin a new one")


def user_message(question: str, images: Sequence[str]) -> User:
    """Return a question as the model gets it."""
    parts = [{"type": "image_url", "image_url": {"url": each}} for each in images]
    return User([{"type": "text", "text": question}, *parts] if parts else question)


def shown_digest(text: str, call_id: str) -> str:
    """Return the digest of the call that the page has shown, which sends back the event that asked."""
    try:
        event = read_ui_event(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        event = None
    if not isinstance(event, ApprovalRequested) or event.call.id != call_id:
        raise HTTPException(400, "to approve takes the event that asked")
    return event.call.digest
