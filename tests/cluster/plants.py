"""Planted faults of the workers, which prove that the checks find them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from streamtools.conversation import Chat
from streamtools.serving import redis_protocol as scripts
from streamtools.serving.leased_run import LeasedRun
from streamtools.serving.redis_server import RedisMessages
from streamtools.tools import ledger, runner


def plant(name: str) -> None:
    """Break this process with the fault `name`."""
    PLANTS[name]()


def _no_fencing() -> None:
    """A process writes events of a run that another process has claimed."""
    checked = "stored[1] == token and first > tonumber(stored[2])"
    vars(scripts)["APPEND"] = _replaced(scripts.APPEND, (checked, "true"))
    vars(scripts)["END"] = _replaced(scripts.END, (checked, "true"))
    vars(scripts)["RENEW"] = _replaced(scripts.RENEW, ("redis.call('HGET', meta, 'token') == token", "true"))


def _lease_without_epoch() -> None:
    """All processes that claim a run have the same token."""
    LeasedRun.token = property(lambda self: "1:owner")  # type: ignore[method-assign,assignment]
    vars(scripts)["CLAIM"] = _replaced(
        scripts.CLAIM, ("epoch .. ':' .. process, 'claim_seq', last", "'1:owner', 'claim_seq', 0")
    )


def _duplicate_append() -> None:
    """An append that is repeated after a lost reply writes its events twice."""
    append = scripts.APPEND
    vars(scripts)["APPEND"] = _replaced(
        append, ("first + i - 1", "last + i"), ("last, first + count - 1", "0, last + count")
    )


def _lost_message() -> None:
    """Every third request to a process is lost."""
    receive, count = RedisMessages.receive, 0

    def lossy(self: RedisMessages, data: bytes) -> None:
        nonlocal count
        is_request = msgspec.json.decode(data)["kind"] in ("stop", "decide")
        count += is_request
        if not is_request or count % 3:
            receive(self, data)

    RedisMessages.receive = lossy  # type: ignore[method-assign]


def _double_continuation() -> None:
    """The model of a continued run does not get the shown text, and repeats it."""
    _change_shown(lambda shown: "")


def _lost_pending_text() -> None:
    """The text that the crashed process had not shown is not generated again."""
    _change_shown(lambda shown: shown and shown + "pending")


def _change_shown(change: Callable[[str], str]) -> None:
    answer = Chat._next_answer
    Chat._next_answer = lambda self, shown="": answer(self, change(shown))  # type: ignore[method-assign]


def _tool_run_again() -> None:
    """No ledger records the calls, so a call without an outcome in the log runs again."""
    once = ledger.run_once

    async def again(recorded: Any, *args: Any, **options: Any) -> Any:
        return await once(None, *args, **options)

    vars(runner)["run_once"] = again


def _replaced(script: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in script, old
        script = script.replace(old, new)
    return script


PLANTS = {
    "no-fencing": _no_fencing,
    "lease-without-epoch": _lease_without_epoch,
    "duplicate-append": _duplicate_append,
    "lost-message": _lost_message,
    "double-continuation": _double_continuation,
    "lost-pending-text": _lost_pending_text,
    "tool-run-again": _tool_run_again,
}
"""The planted faults by name."""
