"""What a user's message consists of, for each provider."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.history import User, read_messages, write_messages

PICTURE = "data:image/png;base64,iVBORw=="
ADDRESS = "https://example.org/a.png"
TEXT = {"type": "text", "text": "What is this?"}


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def written(content: str | list[dict[str, Any]], format: str) -> dict[str, Any]:
    """Return the one message that a provider gets."""
    (message,) = write_messages([User(content)], format)
    return message


SPELLINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a text": ("a", {"type": "text", "text": "a"}),
    "a text that is cached": (
        TEXT | {"cache_control": {"type": "ephemeral"}},
        TEXT | {"cache_control": {"type": "ephemeral"}},
    ),
    "a text of Responses": ({"type": "input_text", "text": "a"}, {"type": "text", "text": "a"}),
    "an image": (picture(ADDRESS), picture(ADDRESS)),
    "an image of Responses": ({"type": "input_image", "image_url": PICTURE}, picture(PICTURE)),
    "an image of Anthropic's": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        picture(PICTURE),
    ),
    "an address of Anthropic's": ({"type": "image", "source": {"type": "url", "url": ADDRESS}}, picture(ADDRESS)),
    "a file": ({"type": "file", "file": {"file_id": "f"}}, {"type": "file", "file": {"file_id": "f"}}),
    "a part of Gemini's": ({"fileData": {"fileUri": "x"}}, {"fileData": {"fileUri": "x"}}),
}


@pytest.mark.parametrize(("part", "expected"), SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling(part: Any, expected: dict[str, Any]) -> None:
    """Inside a history there is one."""
    assert [User([expected])] == read_messages([{"role": "user", "content": [part]}])


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        (3, "a part of a message is a text or an object, not int"),
        ({"type": "text"}, "a part of type 'text' holds no text"),
        ({"type": "image_url", "image_url": {}}, "an image has no address"),
        ({"type": "image_url"}, "an image has no address"),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "an image has no source that can be read"),
    ],
)
def test_parts_that_are_none(part: Any, complaint: str) -> None:
    """They are named."""
    with pytest.raises(ValueError, match=complaint):
        read_messages([{"role": "user", "content": [part]}])


OWN = {"type": "file", "file": {"file_id": "f"}}
CONTENT = [TEXT, picture(PICTURE), picture(ADDRESS), OWN]

WRITTEN: dict[str, dict[str, Any]] = {
    "openai": {"content": CONTENT},
    "responses": {
        "content": [
            {"type": "input_text", "text": "What is this?"},
            {"type": "input_image", "image_url": PICTURE, "detail": "auto"},
            {"type": "input_image", "image_url": ADDRESS, "detail": "auto"},
            OWN,
        ]
    },
    "anthropic": {
        "content": [
            TEXT,
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
            {"type": "image", "source": {"type": "url", "url": ADDRESS}},
            OWN,
        ]
    },
    "gemini": {
        "parts": [
            {"text": "What is this?"},
            {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
            {"fileData": {"fileUri": ADDRESS}},
            OWN,
        ]
    },
}


@pytest.mark.parametrize(("format", "expected"), WRITTEN.items(), ids=WRITTEN)
def test_texts_and_images(format: str, expected: dict[str, Any]) -> None:
    """Each provider gets them in its own form; what is neither goes as it is."""
    assert {"role": "user", **expected} == written(CONTENT, format)


def test_texts_and_images_for_ollama() -> None:
    """It takes texts, and the data of images beside them; anything else has no place."""
    assert {"role": "user", "content": "What is this?\nTell.", "images": ["iVBORw=="]} == written(
        [TEXT, picture(PICTURE), {"type": "text", "text": "Tell."}], "ollama"
    )
    for part in (picture(ADDRESS), OWN):
        with pytest.raises(ValueError, match="Ollama takes text and the data of images, no part of type"):
            written([part], "ollama")


def test_texts_that_say_nothing() -> None:
    """Anthropic refuses blank ones, Gemini empty ones; a message of those alone is left out."""
    blank = User([{"type": "text", "text": " "}, {"type": "text", "text": ""}])
    assert [] == write_messages([blank], "anthropic")
    assert [{"text": " "}] == written(blank.content, "gemini")["parts"]
    assert [] == write_messages([User("")], "gemini")
    assert {"role": "user", "content": ""} == written("", "openai") == written("", "responses")
