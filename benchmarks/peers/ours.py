"""streamtools in the dialect of a row, with `call_deltas`.

Two limits are raised, because two of the streams are meant to go beyond them: a hundred calls in a turn, and JSON
eighty levels deep.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from benchmarks.peers.adapting import Feed, Finish, Peer
from benchmarks.peers.streams import TOOLS
from streamtools import Limits, Parser
from streamtools.events import Call, CallDelta, CallStart, Error, Text

_LIMITS = Limits(calls=1000, depth=100)


def load(choice: str) -> Peer:
    """Return a parser of one dialect, or of several separated by commas."""

    def make() -> tuple[Feed, Finish]:
        parser = Parser(choice.split(","), list(TOOLS), call_deltas=True, limits=_LIMITS)
        return parser.feed, lambda: [parser.close()]

    return Peer(version("streamtools"), make, _read)


def _read(events: Any) -> Iterable[list[Any]]:
    for event in events:
        match event:
            case Text(text=text):
                yield ["text", text]
            case CallStart(call_id=key, name=name):
                yield ["call", key, name]
            case CallDelta(call_id=key, text=text):
                yield ["args", key, text]
            case Call(call=call):
                yield ["whole", call.id, call.name, json.dumps(call.arguments)]
            case Error(call_id=key):
                yield ["fail", key]
