"""Finds files that a model has generated, such as images, in the raw data of providers.

Data that a provider adapter does not interpret becomes a `raw` event. This data may contain files, which user
interfaces show. This module knows the form in which each provider sends files. It returns a media type and a URL for
each file. The URL is a `data:` URL with the content, or an `https:` URL. Files with other URLs are dropped, because an
interface must not load them.

Source: the references of Gemini, Interactions, Bedrock's Converse, OpenAI's Responses, OpenRouter and Ollama, and the
part `file` of the AI SDK's stream.
"""

from __future__ import annotations

from typing import Any

_BASE64_STARTS = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}
"""Maps the start of Base64 data to the media type of an image. Any other image without a media type is PNG."""


def files_of(data: Any) -> list[tuple[str, str]]:
    """Return the media type and the URL of each file in `data`, the data of a `raw` event.

    >>> files_of({"inlineData": {"mimeType": "image/png", "data": "aGk="}})
    [('image/png', 'data:image/png;base64,aGk=')]
    >>> files_of({"groundingMetadata": {}})
    []
    """
    match data:
        case {"inlineData": {"mimeType": str() as media_type, "data": str() as content}}:  # Gemini
            return [_data_url(content, media_type)]
        case {"choices": [{"delta": {"images": [*images]}}]} | {"images": [*images]}:  # OpenRouter, Ollama
            return [file for image in images for file in _read_image(image)]
        case {"type": "image_generation_call", "result": str() as content}:  # Responses
            return [_data_url(content, None)] if content else []
        case {"type": "model_output", "content": [*parts]}:  # Interactions
            return [file for part in parts for file in _read_image(part)]
        case {"image": {"format": str() as name, "source": {"bytes": str() as content}}}:  # Bedrock
            return [_data_url(content, f"image/{name}")]
        case {"type": "file", "url": str() as url, "mediaType": str() as media_type}:  # the AI SDK
            return _if_safe(media_type, url)
    return []


def _read_image(value: Any) -> list[tuple[str, str]]:
    match value:
        case {"image_url": {"url": str() as url}}:
            # The media type is in `data:image/png;base64,…`, but not in an `https:` URL.
            return _if_safe(url[5:].partition(";")[0] if url.startswith("data:") else "image/*", url)
        case {"type": "image", "data": str() as content}:
            media_type = value.get("mime_type")
            return [_data_url(content, media_type if isinstance(media_type, str) else None)]
        case str() if value:
            return [_data_url(value, None)]
    return []


def _data_url(content: str, media_type: str | None) -> tuple[str, str]:
    media_type = media_type or _BASE64_STARTS.get(content[:4], "image/png")
    return media_type, f"data:{media_type};base64,{content}"


def _if_safe(media_type: str, url: str) -> list[tuple[str, str]]:
    return [(media_type, url)] if url.startswith(("data:", "https:")) else []
