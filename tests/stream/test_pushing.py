"""What pushes events: how far a push is made at once, and when the reading around it can be cancelled."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from streamtools.stream.pushing import Pushing, begun

pytestmark = pytest.mark.anyio


async def test_work_that_need_not_wait_is_done_at_once() -> None:
    done: list[str] = []

    async def work() -> None:
        done.append("all")

    assert begun(work()) is None
    assert done == ["all"]


async def test_what_is_left_waits_where_it_waited() -> None:
    done: list[str] = []
    first, second = anyio.Event(), anyio.Event()

    async def work() -> None:
        await first.wait()
        done.append("one")
        await second.wait()
        done.append("two")

    async def let_go_on() -> None:
        await anyio.wait_all_tasks_blocked()
        assert done == []
        first.set()
        await anyio.wait_all_tasks_blocked()
        assert done == ["one"]
        second.set()

    async with anyio.create_task_group() as group:
        group.start_soon(let_go_on)
        left = begun(work())  # in the task that awaits it, in the same scopes
        assert left is not None
        await left
    assert done == ["one", "two"]


async def test_what_it_raises_is_raised_at_once_or_behind_the_wait() -> None:
    async def fail(waits: bool) -> None:
        if waits:
            await anyio.lowlevel.checkpoint()
        raise KeyError("k")

    with pytest.raises(KeyError):
        begun(fail(False))
    left = begun(fail(True))
    assert left is not None
    with pytest.raises(KeyError):
        await left


async def test_a_cancellation_reaches_what_is_left() -> None:
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("up")

    with anyio.CancelScope() as scope:
        left = begun(work())
        assert left is not None
        scope.cancel()
        await left
    assert (scope.cancelled_caught, cleaned) == (True, ["up"])


async def test_the_shield_stays_behind_a_push_until_the_reading_is_let_go() -> None:
    pushing = Pushing(lambda events: None)
    with anyio.CancelScope() as reading:
        await pushing.wait_for(anyio.lowlevel.checkpoint(), reading)
        assert reading.shield
        pushing.let_go()
        assert not reading.shield


async def test_a_push_that_waits_ends_before_the_reading_is_let_go() -> None:
    pushing = Pushing(lambda events: None)
    pushed = anyio.Event()
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as reading:

            async def let_go() -> None:
                pushing.let_go()
                assert reading.shield
                pushed.set()

            group.start_soon(let_go)
            await pushing.wait_for(pushed.wait(), reading)
            pushing.let_go()
            assert not reading.shield


async def test_a_stop_lets_go_of_a_push_that_waits() -> None:
    pushing = Pushing(lambda events: None)
    async with anyio.create_task_group() as group:
        with anyio.CancelScope() as reading:

            async def stop() -> None:
                reading.cancel()
                pushing.stop()

            group.start_soon(stop)
            await pushing.wait_for(anyio.sleep_forever(), reading)
    assert reading.cancelled_caught
    assert pushing.push is None
