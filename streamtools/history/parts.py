"""The parts of a user's message, read from and written for each provider: texts and images.

Inside a history they stand as OpenAI's chat writes them. What is neither text nor image is a provider's own: it goes to
it as it is, and it is for the caller to know whether this provider takes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Content: TypeAlias = str | list[dict[str, Any]]

_data = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def read_part(part: object) -> dict[str, Any]:
    """Return a part of a user's message, in any provider's spelling, as it stands in a history.

    Raises ValueError for what is no part, or an image that is not there.
    """
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        raise ValueError(f"a part of a message is a text or an object, not {type(part).__name__}")
    match part.get("type"):
        case "text" | "input_text":
            return {**part, "type": "text", "text": _text(part)}
        case "image_url" | "input_image":
            return {"type": "image_url", "image_url": _image(part.get("image_url"))}
        case "image":
            return {"type": "image_url", "image_url": {"url": _source(part.get("source"))}}
    return dict(part)


def _text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        raise ValueError("a part of type 'text' holds no text")
    return text


def _image(told: object) -> dict[str, Any]:
    image = {"url": told} if isinstance(told, str) else dict(told) if isinstance(told, Mapping) else {}
    if not isinstance(image.get("url"), str):
        raise ValueError("an image has no address")
    return image


def _source(source: object) -> str:
    """Return where Anthropic finds an image, as an address."""
    match source:
        case {"type": "base64", "media_type": str() as kind, "data": str() as data}:
            return f"data:{kind};base64,{data}"
        case {"type": "url", "url": str() as url}:
            return url
    raise ValueError("an image has no source that can be read")


def responses_parts(content: Content) -> Content:
    """Return a user's content for Responses."""
    if isinstance(content, str):
        return content
    written: list[dict[str, Any]] = []
    for kind, part in _parts(content):
        if kind == "text":
            written.append({"type": "input_text", "text": part["text"]})
        elif kind == "image_url":
            image = part["image_url"]
            written.append({"type": "input_image", "image_url": image["url"], "detail": image.get("detail", "auto")})
        else:
            written.append(part)
    return written


def anthropic_parts(content: Content) -> list[dict[str, Any]]:
    """Return a user's content for Anthropic, without blank texts, which it refuses."""
    written: list[dict[str, Any]] = []
    for kind, part in _parts(content):
        if kind == "text":
            written += [part] if part["text"].strip() else []
        elif kind == "image_url":
            url = part["image_url"]["url"]
            if found := _data.fullmatch(url):
                source = {"type": "base64", "media_type": found[1], "data": found[2]}
            else:
                source = {"type": "url", "url": url}
            written.append({"type": "image", "source": source})
        else:
            written.append(part)
    return written


def gemini_parts(content: Content) -> list[dict[str, Any]]:
    """Return a user's content for Gemini, without empty texts."""
    written: list[dict[str, Any]] = []
    for kind, part in _parts(content):
        if kind == "text":
            written += [{"text": part["text"]}] if part["text"] else []
        elif kind == "image_url":
            url = part["image_url"]["url"]
            found = _data.fullmatch(url)
            held = {"inlineData": {"mimeType": found[1], "data": found[2]}} if found else {"fileData": {"fileUri": url}}
            written.append(held)
        else:
            written.append(part)
    return written


def ollama_parts(content: Content) -> dict[str, Any]:
    """Return the fields of a user's message for Ollama, which takes text and the data of images.

    Raises ValueError for anything else.
    """
    texts: list[str] = []
    images: list[str] = []
    for kind, part in _parts(content):
        if kind == "text":
            texts.append(part["text"])
        elif kind == "image_url" and (found := _data.fullmatch(part["image_url"]["url"])):
            images.append(found[2])
        else:
            raise ValueError(f"Ollama takes text and the data of images, no part of type {kind!r} as it stands")
    fields: dict[str, Any] = {"content": "\n".join(texts)}
    return fields | {"images": images} if images else fields


def _parts(content: Content) -> Iterator[tuple[object, dict[str, Any]]]:
    """Yield each part with its type, as it stands in a history."""
    for part in map(read_part, [content] if isinstance(content, str) else content):
        yield part.get("type"), part
