"""The events as TypeScript types, from their JSON schema: `python -m tests.whole.event_types` writes them."""

from __future__ import annotations

import json
from typing import Any

from streamtools import events
from streamtools.errors import Code
from tests.support.readme import ROOT

PAGE = ROOT / "clients" / "typescript" / "src" / "events.ts"

_HEAD = """\
// Written by `python -m tests.whole.event_types`, of the JSON schema of the events; do not edit.
"""
_TYPES = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def make_types() -> str:
    """Return the module: an interface for each event and each object in an event, and the union of the events."""
    named: dict[str, str] = {}
    written = [_interface(each, f"{each['title']}Event", named) for each in events.json_schema()["anyOf"]]
    union = "".join(f"\n  | {each['title']}Event" for each in events.json_schema()["anyOf"])
    last = f"/** What a run tells its readers, one after the other. */\nexport type StreamEvent ={union};\n"
    return "\n".join([_HEAD, *named.values(), *written, last])


def _interface(schema: dict[str, Any], name: str, named: dict[str, str]) -> str:
    required = {*schema.get("required", ()), "seq"}  # which all events of a run have
    members = [
        f"  {member}{'' if member in required else '?'}: {_type(each, named)};"
        for member, each in schema["properties"].items()
    ]
    said = "\n * ".join(line.strip() for line in schema.get("description", "").split("\n")).replace(" * \n", " *\n")
    return "\n".join([*([f"/** {said} */"] if said else []), f"export interface {name} {{", *members, "}", ""])


def _union(values: list[str]) -> str:
    return "".join(f"\n  | {json.dumps(each)}" for each in values)


def _type(schema: dict[str, Any], named: dict[str, str]) -> str:
    match schema:
        case {"enum": values} if len(values) == len(Code):
            named.setdefault("Code", f"/** What an error or a warning is. */\nexport type Code ={_union(values)};\n")
            return "Code"
        case {"enum": values}:
            return " | ".join(map(json.dumps, values))
        case {"anyOf": choices}:
            return " | ".join(_type(each, named) for each in choices)
        case {"type": "array", "items": items}:
            inner = _type(items, named)
            return f"({inner})[]" if "|" in inner else f"{inner}[]"
        case {"title": str() as title, "properties": _}:
            named.setdefault(title, _interface(schema, title, named).replace("  seq:", "  seq?:"))
            return title
        case {"type": "object"}:
            return "Record<string, unknown>"
        case {"type": "array"}:
            return "unknown[]"
        case {"type": str() as kind}:
            return _TYPES[kind]
    return "unknown"


if __name__ == "__main__":
    PAGE.write_text(make_types(), encoding="utf-8")
