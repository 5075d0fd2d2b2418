"""Reads and writes the content of user messages and results: a text, or a list of parts.

In a history, texts, images and files have the form of parts of OpenAI's chat messages. Any other part has the format of
one provider, and is sent unchanged. The caller must make sure that the provider accepts it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from streamtools.json_values import ARRAY, OBJECT, fits, json_text
from streamtools.limits import DEFAULT_LIMITS

Content: TypeAlias = str | list[dict[str, Any]]

# Matches only URLs in which all parsers find the same host. Before the path, they contain no backslashes. Their host
# contains no escapes, and no characters that some parsers replace.
_WEB_URL = re.compile(
    r"https?://(?:[\w.~!$&'()*+,;=:%-]*+@)?+([\w.-]++|\[[0-9a-f:.]++\])(?::\d*+)?+(?=[/?#]|\Z)",
    re.IGNORECASE | re.ASCII,
)
_GOOGLE_FILES = "generativelanguage.googleapis.com"  # host of files uploaded with the application's API key


def read_content(content: object) -> Content:
    """Return content of any provider in the form of a history.

    None becomes "". A value that is not content, such as a number, becomes a text part with its JSON.
    """
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, ARRAY):
        return [read_part(part) for part in content]
    return [read_part(content)]


def text_in(content: Content) -> str:
    """Return the text of the content. Parts that are not texts are ignored."""
    return content if isinstance(content, str) else "".join(part["text"] for part in content if is_text(part))


def is_text(part: Mapping[str, Any]) -> bool:
    """Return whether a part is a text part."""
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def is_plain(content: object) -> bool:
    """Return whether content is not a list, or is a list of one text part without additional fields."""
    if not isinstance(content, list):
        return True
    return len(content) == 1 and isinstance(content[0], OBJECT) and is_text(content[0]) and len(content[0]) == 2


def is_typed(part: Mapping[str, Any]) -> bool:
    """Return whether a part may be the words of the user: a text that does not stand for a file."""
    text = string_at(part, "text")
    is_link = text.startswith("[") and text.endswith("]") and ": " in text  # the text that `part_of_url` writes
    return is_text(part) and not is_link


def accept_from_client(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a part that a client sent, with its known fields only, or None if it must be dropped.

    Allowed are texts, images at a web address, and images, audio and files that contain their data. A reference to an
    uploaded file is dropped, because the client may not be allowed to read that file.
    """
    match part:
        case {"type": "text", "text": str() as text}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str() as url} as image} if _is_public_url(url):
            return {"type": "image_url", "image_url": _only(image, "url", "detail")}
        case {"type": "file", "file": {"file_data": str() as data} as file} if data and "file_id" not in file:
            return {"type": "file", "file": _only(file, "filename", "file_data")}
        case {"type": "input_audio", "input_audio": {"data": str() as data} as sound} if data:
            return {"type": "input_audio", "input_audio": {"data": data, "format": string_at(sound, "format")}}
    return None


def _only(members: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: members[name] for name in names if isinstance(members.get(name), str)}


def _is_public_url(url: str) -> bool:
    """Return whether this is a `data:` URL, or a web address outside of Google's storage of uploaded files."""
    found = _WEB_URL.match(url)
    return url.startswith("data:") or (found is not None and found[1].lower().rstrip(".") not in ("", _GOOGLE_FILES))


def string_at(value: object, key: str) -> str:
    """Return `value[key]` if it is a string, otherwise ""."""
    found = value.get(key) if value and isinstance(value, OBJECT) else None
    return found if isinstance(found, str) else ""


def without(message: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """Return the fields of an object whose names are not in `known`."""
    return {name: value for name, value in message.items() if name not in known}


def signed_or_encrypted(details: object) -> list[dict[str, Any]]:
    """Return the entries of `reasoning_details` that are signed or encrypted. Returns [] if they nest too deeply."""
    entries = [entry for entry in details if isinstance(entry, dict)] if isinstance(details, list) else []
    signed = [entry for entry in entries if string_at(entry, "data") or string_at(entry, "signature")]
    return signed if fits(signed, DEFAULT_LIMITS.depth) else []


def read_part(part: object) -> dict[str, Any]:
    """Return a part of any provider in the form of a history."""
    if not isinstance(part, OBJECT):
        return {"type": "text", "text": part if isinstance(part, str) else json_text(part)}
    match part:
        case {"type": "text" | "input_text" | "output_text" | "summary_text"}:
            return {**part, "type": "text", "text": string_at(part, "text")}
        case {"type": "image_url" | "input_image"}:
            found = part.get("image_url")
            image = {"url": found} if isinstance(found, str) else dict(found) if isinstance(found, OBJECT) else {}
            if isinstance(image.get("url"), str):
                detail = {"detail": part["detail"]} if string_at(part, "detail") else {}
                return _with_rest(part, image | detail)
        case {"type": "image", "source": {"type": "url", "url": str() as url}}:  # Anthropic's format
            return _with_rest(part, {"url": url})
        case {"type": "image", "source": {"type": "base64", "media_type": str() as kind, "data": str() as data}}:
            return _with_rest(part, {"url": f"data:{kind};base64,{data}"})
        case {"type": "document", "source": {"type": "base64", "media_type": str() as kind, "data": str() as data}}:
            return without(part, "source", "title") | file_of(kind, data, string_at(part, "title"))
        case {"type": "document_url", "document_url": str() as url} if found := data_of(url):  # Mistral's format
            return without(part, "document_url", "document_name") | file_of(*found, string_at(part, "document_name"))
        case {"type": "input_file"} if data_of(string_at(part, "file_data")):
            known = {name: part[name] for name in ("filename", "file_data") if string_at(part, name)}
            return without(part, *known) | {"type": "file", "file": known}
    return dict(part)


def file_of(kind: str, data: str, name: str = "") -> dict[str, Any]:
    """Return a file part with Base64 data."""
    named = {"filename": name} if name else {}
    return {"type": "file", "file": {**named, "file_data": f"data:{kind};base64,{data}"}}


def part_of_url(url: str, kind: str, name: str = "") -> dict[str, Any]:
    """Return a part for the data or the file at `url`. `kind` is its media type.

    An image becomes an image part, and a `data:` URL a file part. Any other URL becomes a text with the name and the
    URL.
    """
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if url.startswith("data:"):
        return {"type": "file", "file": {**({"filename": name} if name else {}), "file_data": url}}
    return {"type": "text", "text": f"[{name or kind}: {url}]"}


def _with_rest(part: Mapping[str, Any], image: dict[str, Any]) -> dict[str, Any]:
    rest = without(part, "source", "image_url", "detail")  # for example `cache_control`
    return rest | {"type": "image_url", "image_url": image}


def write_parts(
    content: Content | Iterable[dict[str, Any]],
    text: Callable[[dict[str, Any]], Any],
    image: Callable[[dict[str, Any]], Any],
    file: Callable[[str, str, str], Any] | None = None,
    extra: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Return the content as parts of a provider's request.

    `text`, `image` and `file` are functions that convert one part each. A part for which `text` returns None is
    omitted. `file` gets the media type, the Base64 data, and the name or "". Files without data, and parts of other
    types, are sent unchanged. `extra` names the additional fields that are copied from images and files.
    """
    written = []
    for part in [read_part(one) for one in ([content] if isinstance(content, str) else content)]:
        kind = part.get("type")
        if kind == "text":
            written.append(text(part))
        elif kind == "image_url" and string_at(part.get("image_url"), "url"):
            written.append(image(part["image_url"]) | {name: part[name] for name in extra if name in part})
        elif kind == "file" and file is not None and (found := data_of(string_at(part.get("file"), "file_data"))):
            made = file(*found, string_at(part["file"], "filename"))
            written.append(made | {name: part[name] for name in extra if name in part})
        else:
            written.append(part)
    return [part for part in written if part is not None]


def data_of(url: str) -> tuple[str, str] | None:
    """Return the media type and the data of a `data:` URL in Base64, or None for any other URL."""
    head, comma, data = url.removeprefix("data:").partition(",")
    if not (comma and url.startswith("data:") and head.endswith(";base64")):
        return None
    return head.partition(";")[0], data
