"""Hides the values of a vault in the data of a run on Redis, and restores them when the data is read.

A run on Redis contains placeholders. `LeasedRun.hide` writes them into each event, the result and the note of the run.
The field `vault` of a run has the values. They are written before the events that need them, and deleted with the run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any

import msgspec

from streamtools.events import UIEvent, read_ui_event
from streamtools.json_values import compact, with_texts
from streamtools.rules.vault import QUOTED, Vault
from streamtools.serving.redis_server import RedisServer
from streamtools.stream.long_work import IN_THREAD, in_thread_if


class StoredVault(Vault):
    """The vault of a run of another process. It has no rules, so it hides each text completely."""

    def replace(self, text: str, **options: Any) -> str:
        return self._add(QUOTED, text)

    def value_of(self, placeholder: str) -> str:
        """Return the value of a placeholder. Raises LookupError if it is unknown."""
        if (value := super().value_of(placeholder)) is None:
            raise LookupError(placeholder)
        return value


_UNTYPED = ("arguments", "result", "value", "data", "item", "messages", "own", "fields")
"""The fields of events that may hold any JSON. A number in another field must stay a number."""


@cache
def _words() -> frozenset[str]:
    """Return the names and the constants in the JSON of events. They are not hidden, so that events can be read."""
    return frozenset(re.findall('"([^"]*)"', json.dumps(msgspec.json.schema(UIEvent))))


def hide(vault: Vault, data: bytes, *, is_delta: bool) -> bytes:
    """Return JSON with placeholders instead of values.

    Finders are too slow for each delta. The next request passes the complete text to them. A number becomes a
    placeholder in lower case. Text never has one, because `replace` hides text that looks like a placeholder.
    """
    words, replace, value = _words(), partial(vault.replace, only_known=is_delta), json.loads(data)
    below = _UNTYPED if isinstance(value, dict) and value.keys() >= {"type", "seq"} else ()
    texts, numbers = lambda text: text if text in words else replace(text), lambda text: replace(text).lower()
    return compact(with_texts(value, texts, numbers, below)).encode()


def restored(vault: Vault, data: bytes) -> bytes:
    """Return JSON with values instead of placeholders."""

    def restore(text: str) -> Any:
        value = vault.restore(text)
        return json.loads(value) if text.islower() and value != text else value

    return compact(with_texts(json.loads(data), restore)).encode()


def dump(vault: Vault) -> bytes:
    """Return the values of a vault as JSON, with the kinds that have no values yet, so that a reader knows them."""
    values = {kind: [] for kind in vault._kinds.values()} | vault.state["values"]
    return compact({"values": values}).encode()


class VaultReader:
    """Restores values in the stored data of a run. It reads the values again if the run has new ones."""

    def __init__(self, server: RedisServer, key: str) -> None:
        self.vault: StoredVault | None = None
        self._server, self._key = server, key

    async def read(self) -> None:
        """Read the values from the server."""
        server, meta = self._server, self._server.keys.of_run(self._key).meta
        data = await server.retry("HGET", meta, "vault", seconds=server.settings.max_outage)
        if data is not None:
            try:
                stored = json.loads(server.settings.cipher.decrypt(data))
            except Exception as error:
                raise ValueError("The values of the run are encrypted with another `vault_cipher`.") from error
            self.vault = StoredVault(state=stored)

    async def restore(self, data: bytes) -> bytes:
        """Return JSON with values instead of placeholders."""
        if self.vault is None:
            return data
        is_long = len(data) > IN_THREAD  # such as the history of a waiting run: 0.2 s for 800 KB
        with suppress(LookupError):
            return await in_thread_if(is_long, partial(restored, self.vault, data))
        await self.read()
        return await in_thread_if(is_long, partial(restored, self.vault, data))

    async def restore_events(self, events: Sequence[UIEvent]) -> Sequence[UIEvent]:
        """Return events with values instead of placeholders."""
        if self.vault is None:
            return events
        return [read_ui_event(await self.restore(event.to_json().encode())) for event in events]
