"""Content: a text, or a list of parts, in a user's message or in the result of a call.

Inside a history, parts are as OpenAI's chat writes them: texts, images, files. What is none of these is a provider's
own: it goes to it as it is, and it is for the caller to know whether this provider takes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from streamtools.json_values import compact, fits, writable
from streamtools.limits import DEFAULT_LIMITS

Content: TypeAlias = str | list[dict[str, Any]]

# An address whose host all readers find alike: no backslash, no escape, no letter that is folded to another.
_web = re.compile(
    r"https?://(?:[\w.~!$&'()*+,;=:%-]*+@)?+([\w.-]++|\[[0-9a-f:.]++\])(?::\d*+)?+(?=[/?#]|\Z)",
    re.IGNORECASE | re.ASCII,
)
_FILES = "generativelanguage.googleapis.com"  # where Google keeps what was uploaded with the application's key


def read_content(content: object) -> Content:
    """Return a content of any provider's as it is in a history; what is neither text nor list is its JSON, null ""."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, list | tuple):
        return [read_part(part) for part in content]
    return [read_part(content)]


def text_in(content: Content) -> str:
    """Return what a content says in text, the rest left out."""
    return content if isinstance(content, str) else "".join(each["text"] for each in content if is_text(each))


def is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def of_client(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a client's part of a history, if it is a text, or holds its data or an open address, without what else
    stands there; None for a reference to what a client need not be allowed to see.
    """
    match part:
        case {"type": "text", "text": str() as text}:
            return {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str() as url} as image} if _is_open(url):
            return {"type": "image_url", "image_url": _only(image, "url", "detail")}
        case {"type": "file", "file": {"file_data": str() as data} as file} if data and "file_id" not in file:
            return {"type": "file", "file": _only(file, "filename", "file_data")}
        case {"type": "input_audio", "input_audio": {"data": str() as data} as sound} if data:
            return {"type": "input_audio", "input_audio": {"data": data, "format": given(sound, "format")}}
    return None


def _only(members: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: members[name] for name in names if isinstance(members.get(name), str)}


def _is_open(url: str) -> bool:
    """Return whether an address holds the data, or is one of the web and not of a provider's file."""
    found = _web.match(url)
    return url.startswith("data:") or (found is not None and found[1].lower().rstrip(".") not in ("", _FILES))


def given(value: object, key: str) -> str:
    """Return a text in an object, "" if there is none."""
    found = value.get(key) if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else ""


def without(message: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """Return the members of an object other than those."""
    return {name: value for name, value in message.items() if name not in known}


def encrypted(details: object) -> list[dict[str, Any]]:
    """Return the entries of `reasoning_details` that are signed or encrypted."""
    entries = [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    signed = [each for each in entries if given(each, "data") or given(each, "signature")]
    return signed if fits(signed, DEFAULT_LIMITS.depth) else []


def read_part(part: object) -> dict[str, Any]:
    """Return a part of a message, in any provider's spelling, as it is in a history."""
    if not isinstance(part, Mapping):
        return {"type": "text", "text": part if isinstance(part, str) else compact(writable(part))}
    match part.get("type"):
        case "text" | "input_text" | "output_text" | "summary_text":
            return {**part, "type": "text", "text": given(part, "text")}
        case "image_url" | "input_image":
            found = part.get("image_url")
            image = {"url": found} if isinstance(found, str) else dict(found) if isinstance(found, Mapping) else {}
            if isinstance(image.get("url"), str):
                detail = {"detail": part["detail"]} if given(part, "detail") else {}
                return _with_rest(part, image | detail)
        case "image":
            match part.get("source"):  # of Anthropic's
                case {"type": "base64", "media_type": str() as kind, "data": str() as data}:
                    return _with_rest(part, {"url": f"data:{kind};base64,{data}"})
                case {"type": "url", "url": str() as url}:
                    return _with_rest(part, {"url": url})
        case "document":
            match part.get("source"):  # of Anthropic's, too
                case {"type": "base64", "media_type": str() as kind, "data": str() as data}:
                    return without(part, "source", "title") | file_of(kind, data, given(part, "title"))
        case "document_url" if found := data_of(given(part, "document_url")):  # of Mistral's
            return without(part, "document_url", "document_name") | file_of(*found, given(part, "document_name"))
        case "input_file" if data_of(given(part, "file_data")):
            known = {name: part[name] for name in ("filename", "file_data") if given(part, name)}
            return without(part, *known) | {"type": "file", "file": known}
    return dict(part)


def file_of(kind: str, data: str, name: str = "") -> dict[str, Any]:
    """Return a file whose data, in Base64, is there."""
    named = {"filename": name} if name else {}
    return {"type": "file", "file": {**named, "file_data": f"data:{kind};base64,{data}"}}


def _with_rest(part: Mapping[str, Any], image: dict[str, Any]) -> dict[str, Any]:
    rest = without(part, "source", "image_url", "detail")  # how it is cached
    return rest | {"type": "image_url", "image_url": image}


def write_parts(
    content: Content | Iterable[dict[str, Any]],
    text: Callable[[dict[str, Any]], Any],
    image: Callable[[dict[str, Any]], Any],
    file: Callable[[str, str, str], Any] | None = None,
    beside: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """Return a content with each text, image and file as these write it; what they make None is left out.

    A file is one whose data is there: it is given as its media type, its data in Base64, and its name or "". Of the
    members beside an image and a file those go along that are named in `beside`.
    """
    written = []
    for part in [read_part(each) for each in ([content] if isinstance(content, str) else content)]:
        kind = part.get("type")
        if kind == "text":
            written.append(text(part))
        elif kind == "image_url" and given(part.get("image_url"), "url"):
            written.append(image(part["image_url"]) | {name: part[name] for name in beside if name in part})
        elif kind == "file" and file is not None and (found := data_of(given(part.get("file"), "file_data"))):
            made = file(*found, given(part["file"], "filename"))
            written.append(made | {name: part[name] for name in beside if name in part})
        else:
            written.append(part)
    return [part for part in written if part is not None]


def data_of(url: str) -> tuple[str, str] | None:
    """Return the media type and the data that an address holds in Base64, None for one that leads elsewhere."""
    head, comma, data = url.removeprefix("data:").partition(",")
    if not (comma and url.startswith("data:") and head.endswith(";base64")):
        return None
    return head.partition(";")[0], data
