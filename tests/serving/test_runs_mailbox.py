"""Results from clients: one for each call, early or late, only while the call runs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from streamtools import ToolError
from streamtools.serving.mailbox import Mailbox

pytestmark = pytest.mark.anyio

UNKNOWN = "no call with this id waits for a result"
ANSWERED = "this call already has a result"


async def test_a_result_that_is_waited_for() -> None:
    """All waiting tools get it, and a second one is refused."""
    mailbox, results = Mailbox(), list[Any]()

    async def wait() -> None:
        results.append(await mailbox.wait("c"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert mailbox.put("c", 1, None) is None
        assert ANSWERED == mailbox.put("c", 2, None)
    assert [1, 1] == results
    assert ANSWERED == mailbox.put("c", 2, None)
    mailbox.expect("c")
    assert ANSWERED == mailbox.put("c", 2, None)


async def test_a_result_that_comes_early() -> None:
    """It waits for the tool if the call runs."""
    mailbox = Mailbox()
    assert UNKNOWN == mailbox.put("c", 1, None)
    mailbox.expect("c")
    assert mailbox.put("c", 1, None) is None
    assert ANSWERED == mailbox.put("c", 2, None)
    assert 1 == await mailbox.wait("c")


async def test_an_error_in_the_place_of_a_result() -> None:
    """The tool raises it."""
    mailbox = Mailbox()
    mailbox.expect("c")
    mailbox.put("c", None, "not allowed")
    with pytest.raises(ToolError, match="not allowed"):
        await mailbox.wait("c")


async def test_a_call_that_has_ended() -> None:
    """It accepts no result, unless a tool still waits for it."""
    mailbox = Mailbox()
    mailbox.expect("c")
    mailbox.forget("c")
    mailbox.forget("d")
    assert UNKNOWN == mailbox.put("c", 1, None)
    async with anyio.create_task_group() as group:
        group.start_soon(mailbox.wait, "e")
        await anyio.wait_all_tasks_blocked()
        mailbox.forget("e")
        assert mailbox.put("e", 1, None) is None


async def test_a_wait_that_is_cancelled() -> None:
    """Nothing remains of it."""
    mailbox = Mailbox()
    with anyio.move_on_after(0):
        await mailbox.wait("c")
    assert UNKNOWN == mailbox.put("c", 1, None)


async def test_bounds() -> None:
    """The oldest call without a waiting tool makes room."""
    mailbox = Mailbox()
    async with anyio.create_task_group() as group:
        group.start_soon(mailbox.wait, "waiting")
        await anyio.wait_all_tasks_blocked()
        for number in range(100):
            mailbox.expect(str(number))
            mailbox.expect(str(number))
        assert UNKNOWN == mailbox.put("0", 1, None)
        assert mailbox.put("99", 1, None) is None
        assert mailbox.put("waiting", 1, None) is None


async def test_calls_with_waiting_tools_are_kept() -> None:
    mailbox = Mailbox()
    async with anyio.create_task_group() as group:
        for number in range(64):
            group.start_soon(mailbox.wait, str(number))
        await anyio.wait_all_tasks_blocked()
        mailbox.expect("one more")
        assert [None] * 64 == [mailbox.put(str(number), 1, None) for number in range(64)]
