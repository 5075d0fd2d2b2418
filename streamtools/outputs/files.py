"""Files that a model has made, as they pass among what is no text: for front ends that have a place for them. Sans-IO.

What an adapter does not interpret is `raw`, in its provider's form. Images are a part of it that readers want to see,
so those forms are known here. A file is a media type and an address: one that holds the data (`data:`), or leads to a
server (`https:`); no other may reach an interface.

Source: the references of Gemini, Interactions, Bedrock's Converse, OpenAI's Responses, OpenRouter and Ollama, and the
part `file` of the AI SDK's stream.
"""

from __future__ import annotations

from typing import Any

_BEGINNINGS = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}
"""How images in Base64 begin whose type nobody tells; all others are PNG."""


def files_of(data: Any) -> list[tuple[str, str]]:
    """Return the files in what a provider has sent, each as its media type and its address.

    >>> files_of({"inlineData": {"mimeType": "image/png", "data": "aGk="}})
    [('image/png', 'data:image/png;base64,aGk=')]
    >>> files_of({"groundingMetadata": {}})
    []
    """
    match data:
        case {"inlineData": {"mimeType": str() as kind, "data": str() as held}}:  # Gemini
            return [_held(held, kind)]
        case {"choices": [{"delta": {"images": [*images]}}]} | {"images": [*images]}:  # OpenRouter, Ollama
            return [found for each in images for found in _image(each)]
        case {"type": "image_generation_call", "result": str() as held}:  # Responses
            return [_held(held, None)] if held else []
        case {"type": "model_output", "content": [*parts]}:  # Interactions
            return [found for each in parts for found in _image(each)]
        case {"image": {"format": str() as name, "source": {"bytes": str() as held}}}:  # Bedrock
            return [_held(held, f"image/{name}")]
        case {"type": "file", "url": str() as url, "mediaType": str() as kind}:  # the AI SDK
            return _safe(kind, url)
    return []


def _image(value: Any) -> list[tuple[str, str]]:
    match value:
        case {"image_url": {"url": str() as url}}:
            kind = url[5:].partition(";")[0] if url.startswith("data:") else "image/*"
            return _safe(kind, url)
        case {"type": "image", "data": str() as held}:
            kind = value.get("mime_type")
            return [_held(held, kind if isinstance(kind, str) else None)]
        case str() if value:
            return [_held(value, None)]
    return []


def _held(data: str, kind: str | None) -> tuple[str, str]:
    kind = kind or _BEGINNINGS.get(data[:4], "image/png")
    return kind, f"data:{kind};base64,{data}"


def _safe(kind: str, url: str) -> list[tuple[str, str]]:
    return [(kind, url)] if url.startswith(("data:", "https:")) else []
