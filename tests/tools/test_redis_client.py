"""Clients that a Redis store and a ledger accept."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from streamtools.runs import RedisStore, Runs
from streamtools.tools import RedisLedger


@pytest.mark.parametrize("user", [RedisLedger, lambda url: Runs(RedisStore(url))])
def test_a_url_is_refused_on_trio(user: Any) -> None:
    """The error names the alternative."""

    async def enter() -> None:
        with pytest.raises(RuntimeError, match=r"asyncio only\. On trio, use"):
            async with user("redis://127.0.0.1:1"):
                pass

    anyio.run(enter, backend="trio")
