"""The second process: the provider and the browsers. It exchanges JSON lines with its parent.

It sends its port, receives the port of the application and the number of browsers, and later the command to stop. Then
each browser finishes, the process sends its results, and it ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import sys
from typing import Any

from benchmarks.soaking.browsers import browse
from benchmarks.soaking.provider import Provider
from benchmarks.soaking.tally import Tally


async def run(pace: float) -> None:
    """Run until the parent ends."""
    provider, tally = Provider(pace), Tally()
    _tell({"port": await provider.start()})
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), sys.stdin)
    order = json.loads(await told.readline())
    seeds = itertools.islice(itertools.count(order["seed"]), order["count"])
    is_over = False

    async def use_browser(wait: float) -> None:
        await asyncio.sleep(wait)
        while not is_over and (seed := next(seeds, None)) is not None:
            try:
                await browse(order["port"], seed, tally)
            except Exception as error:
                tally.blame(f"browser of {seed}", error)

    browsers = [
        asyncio.create_task(use_browser(order["ramp"] * place / order["browsers"]))
        for place in range(order["browsers"])
    ]
    await told.readline()
    is_over = True
    await asyncio.gather(*browsers)
    _tell({"tally": vars(tally), "sent": provider.done})
    await told.read()


def _tell(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(run(float(sys.argv[1])))
