"""What the torture has found, each by itself."""

from __future__ import annotations

import asyncio

import pytest

from streamtools import ToolStream
from streamtools.events import ProviderCompleted
from tests.stories import Script, story, texts


@pytest.mark.parametrize("steps", range(1, 12))
@pytest.mark.filterwarnings("ignore:coroutine .*was never awaited:RuntimeWarning")  # anyio's, of a task's first step
def test_a_run_has_its_end_where_asyncio_cancels_every_task(steps: int) -> None:
    """As it does at the end of a program, though that knows no shields, and strikes a task before its first step or
    while it closes its source: the source is closed, `done` is said, and `aclose()` waits for nobody.
    """

    class Slow(Script):
        async def aclose(self) -> None:
            await super().aclose()
            await asyncio.sleep(0)

    source = Slow([*texts("a"), ProviderCompleted(finish_reason="stop")])
    stream = ToolStream(source)

    async def read() -> None:
        async with stream as events:
            async for _ in events:
                pass

    async def main() -> None:
        reader = asyncio.create_task(read())
        for _ in range(steps):
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.wait([reader])
        async with asyncio.timeout(5):
            await stream.aclose()
            told = story([event async for event in stream])
        assert source.closed == 1
        assert stream.result.reason in ("cancelled", "finished")
        assert told == [] or told[-1].startswith("done")

    asyncio.run(main())
