"""Where a reader that comes back goes on: behind the `seq` of the last event that it saw, which its request tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.requests import HTTPConnection

_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)  # as many digits as a number of JavaScript holds exactly


class AnyRequest(Protocol):
    """A request or a websocket, of whichever framework."""

    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def query_params(self) -> Any: ...


def last_event_id(request: AnyRequest | Mapping[str, Any]) -> int:
    """Return the `seq` of the last event that a client has seen, and 0 if it has seen none, or tells no number.

    It is in the header `Last-Event-ID`, which a browser's `EventSource` sends when it comes back, or else in `?after=`.
    What is no number counts as 0: such a client gets all events again, and misses none. `request` is a request or a
    websocket of Starlette, FastAPI or Litestar, or the scope of ASGI.
    """
    # The requests of Starlette are mappings too: of the scope.
    asked: Any = request if hasattr(request, "query_params") else HTTPConnection(dict(request))
    told = asked.headers.get("last-event-id") or asked.query_params.get("after") or ""
    return int(told) if _NUMBER.fullmatch(told) else 0
