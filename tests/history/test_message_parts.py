"""Content of user messages, for each provider."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.history import Origin, User, read_messages, write_messages

PICTURE = "data:image/png;base64,iVBORw=="
ADDRESS = "https://example.org/a.png"
TEXT = {"type": "text", "text": "What is this?"}


def picture(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def written(content: str | list[dict[str, Any]], format: str) -> dict[str, Any]:
    """Return the one message that a provider gets."""
    message: dict[str, Any]
    (message,) = write_messages([User(content)], format)
    return message


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (3, {"type": "text", "text": "3"}),
        ({"type": "text"}, {"type": "text", "text": ""}),
        *[
            (part, part)
            for part in (
                {"type": "image_url", "image_url": {}},
                {"type": "image_url"},
                {"type": "image", "source": {"type": "file", "file_id": "f"}},
                {"type": "input_image", "file_id": "f"},
            )
        ],
    ],
)
def test_unknown_parts_are_kept_for_their_provider(part: Any, expected: dict[str, Any]) -> None:
    """A part with text is kept as text. Another is an image by file id."""
    history = read_messages([{"role": "user", "content": [part]}])
    assert [User([expected])] == history
    for format in ("openai", "responses", "anthropic", "gemini"):
        write_messages(history, format)


def test_ollama_accepts_only_text_and_image_data() -> None:
    assert {"role": "user", "content": "What is this?\nTell.", "images": ["iVBORw=="]} == written(
        [TEXT, picture(PICTURE), {"type": "text", "text": "Tell."}], "ollama"
    )
    for part in (picture(ADDRESS), {"type": "file", "file": {"file_id": "f"}}):
        with pytest.raises(ValueError, match="Ollama accepts only text and image data, got"):
            written([part], "ollama")


def test_fields_of_another_format_are_dropped() -> None:
    """Cache control is sent to servers of chat completions that accept it."""
    cached = {"cache_control": {"type": "ephemeral"}}
    source = {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    document = {"type": "document", "source": source, "title": "a.pdf", "citations": {"enabled": True}, **cached}
    history = read_messages([{"role": "user", "content": [TEXT | cached, document]}])
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}}
    assert [TEXT | cached, document] == write_messages(history, "anthropic")[0]["content"]
    for host, beside in ((None, cached), ("openrouter.ai", cached), ("api.openai.com", {}), ("api.mistral.ai", {})):
        (message,) = write_messages(history, "openai", provider=Origin(host=host))
        assert [TEXT | beside, file | beside] == message["content"]
    assert [TEXT, file] == write_messages(history, "cohere")[0]["content"]
