"""Libraries that parse incomplete JSON. They read the whole text again with each delta, as documented."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.peers.adapting import Feed, Finish, Peer

Parse = Callable[[bytes], Any]


def load(choice: str) -> Peer:
    """Return one library, used as it documents for streams."""
    library, _, eighths = choice.partition(" ")
    parse = _PARSERS[library]()

    def make() -> tuple[Feed, Finish]:
        buffer = bytearray()
        value: Any = None
        due = 1

        def feed(delta: str) -> None:
            nonlocal value
            buffer.extend(delta.encode())
            value = parse(bytes(buffer))

        def feed_seldom(delta: str) -> None:
            nonlocal value, due
            buffer.extend(delta.encode())
            if len(buffer) >= due:
                value = parse(bytes(buffer))
                due = len(buffer) + len(buffer) // 8 + 1

        def keep(delta: str) -> None:
            buffer.extend(delta.encode())

        feeds: dict[str, Feed] = {"json": keep}
        return feeds.get(choice, feed_seldom if eighths else feed), lambda: [parse(bytes(buffer))]

    installed = "of Python" if library == "json" else version(library.replace("_", "-"))
    return Peer(installed, make, _read)


def _of_python() -> Parse:
    return json.loads


def _jiter() -> Parse:
    return partial(import_module("jiter").from_json, partial_mode="trailing-strings")


def _pydantic_core() -> Parse:
    return partial(import_module("pydantic_core").from_json, allow_partial="trailing-strings")


def _partial_json_parser() -> Parse:
    module = import_module("partial_json_parser")
    allow = import_module("partial_json_parser.core.options").Allow.ALL

    def parse(data: bytes) -> Any:
        return module.loads(data.decode(), allow)

    return parse


def _json_repair() -> Parse:
    loads = import_module("json_repair").loads

    def parse(data: bytes) -> Any:
        return loads(data.decode(), stream_stable=True)

    return parse


_PARSERS: dict[str, Callable[[], Parse]] = {
    "json": _of_python,
    "jiter": _jiter,
    "pydantic_core": _pydantic_core,
    "partial_json_parser": _partial_json_parser,
    "json_repair": _json_repair,
}


def _read(value: Any) -> Iterable[list[Any]]:
    if value is None:  # not the end yet
        return
    yield ["whole", "0", "write_file" if "content" in value else "store", json.dumps(value)]
