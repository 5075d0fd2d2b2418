"""Replaces the values of a `Vault` in the messages of a request.

The text of all messages is searched, also in calls, results, text files and the items of providers. Other files,
addresses of files, signed reasoning, ids, and the names of tools are sent unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from streamtools.history import Assistant, Message, Results, System, User
from streamtools.history.content import data_of
from streamtools.history.untrusted import change_file, change_texts
from streamtools.rules.vault import Vault

_SENT_UNCHANGED = frozenset({
    "type", "role", "id", "call_id", "tool_call_id", "tool_use_id", "file_id", "format", "detail", "media_type",
    "mime_type", "mimeType", "data", "bytes", "encrypted_content", "signature", "thoughtSignature",
})  # fmt: skip
"""The fields of messages that hold no text for the model. Fields of arguments with these names are searched."""


def hide(vault: Vault, history: Iterable[Message]) -> list[Message]:
    """Return the messages with placeholders. All values are found first, and then replaced in all messages."""
    messages = list(history)
    for message in messages:
        _change(vault, message, vault.learn)
    return [_change(vault, one, partial(vault.replace, from_model=isinstance(one, Assistant))) for one in messages]


def _change(vault: Vault, message: Message, replace: Callable[[str], str]) -> Message:
    """Return the message after `replace` of each text that the vault searches."""
    role = {System: "system", User: "user"}.get(type(message))
    if role in vault.skip_roles:
        return message

    def change(text: str, name: str) -> str:
        if found := data_of(text):
            return text.removesuffix(found[1]) + change_file(*found, replace)
        if name in _SENT_UNCHANGED or not name or (name.lower().endswith(("url", "uri")) and "://" in text):
            return text
        return replace(text)

    if isinstance(message, Results):
        results = [one if one.name in vault.skip_tools else change_texts(one, change) for one in message.results]
        return Results(tuple(results))
    return change_texts(message, change)
