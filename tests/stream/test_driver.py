"""What drives sources: the flag that tells of an end."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from streamtools.stream.driver import Flag

pytestmark = pytest.mark.anyio


async def test_a_flag_wakes_all_who_wait_and_whoever_comes_later() -> None:
    """Set once, or once more; made outside of an event loop, too."""
    flag, woken = Flag(), []

    async def wait(name: str) -> None:
        await flag.wait()
        woken.append(name)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "one")
            tasks.start_soon(wait, "two")
            for _ in range(3):
                await checkpoint()
            assert (False, []) == (flag.is_set(), woken)
            flag.set()
            flag.set()
        await wait("late")
    assert flag.is_set()
    assert ["one", "two"] == sorted(woken[:2])
    assert "late" == woken[2]
