"""The ledger in PostgreSQL with a server that is slow, missing or busy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import anyio
import psycopg
import pytest

from streamtools import RunnerOptions, ToolStream, sources
from streamtools.calls import ToolCall
from streamtools.errors import CallRefused
from streamtools.events import NativeToolCall, ProviderCompleted
from streamtools.tools import Claim, PostgresLedger
from tests.support.postgres import PostgresServer
from tests.support.stories import story

pytestmark = pytest.mark.servers

CALL = ToolCall(id="call_1", name="pay", arguments={"to": "Ann"}, dialect="native")


@pytest.fixture
async def ledger(postgres: PostgresServer) -> AsyncIterator[PostgresLedger]:
    """An empty ledger."""
    async with PostgresLedger(postgres.url, schema=f"st-{uuid4()}") as made:
        yield made


def other(ledger: PostgresLedger, postgres: PostgresServer) -> psycopg.Connection:
    """A separate connection to the tables of this ledger."""
    connection = psycopg.connect(postgres.url)
    connection.execute(psycopg.sql.SQL("SET search_path TO {}").format(psycopg.sql.Identifier(ledger._schema)))
    connection.commit()
    return connection


@pytest.mark.parametrize("is_connected", [False, True])
async def test_a_call_to_a_stopped_server_can_be_cancelled(
    ledger: PostgresLedger, postgres: PostgresServer, is_connected: bool
) -> None:
    """When the server responds again, the call can start."""
    if is_connected:
        await ledger.begin("run_0", CALL)
    postgres.pause()
    try:
        for _ in range(6):  # more than it has connections
            with anyio.move_on_after(0.01) as scope:
                await ledger.begin("run_1", CALL, Claim(holder="h"))
            assert scope.cancelled_caught
    finally:
        postgres.resume()
    assert await ledger.begin("run_1", CALL, Claim(holder="h")) is None


async def test_a_tool_does_not_run_without_its_ledger(ledger: PostgresLedger, postgres: PostgresServer) -> None:
    """The ledger has the timeout of the tool. A run that is cancelled meanwhile ends."""
    paid: list[str] = []

    async def pay(to: str) -> str:
        paid.append(to)
        return "paid"

    called = NativeToolCall("pay", {"to": "Ann"}, id="n0")
    source = sources.events([called, ProviderCompleted(finish_reason="tool_calls")])
    postgres.pause()
    try:
        async with ToolStream(source, tools=[pay], runner=RunnerOptions(ledger=ledger, timeout=0.05)) as events:
            told = story([event async for event in events])
    finally:
        postgres.resume()
    assert "error n0 tool_failed" in told
    assert [] == paid


async def test_closed_connections_are_replaced(ledger: PostgresLedger, postgres: PostgresServer) -> None:
    await ledger.begin("run_1", CALL, Claim(holder="h"))
    with other(ledger, postgres) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query = 'COMMIT'"
        )
        assert (True,) in ended.fetchall()
    entry = await ledger.begin("run_1", CALL, Claim(holder="g"))
    assert entry is not None
    assert entry.is_running


async def test_a_missing_server_raises_the_error_of_psycopg() -> None:
    async with PostgresLedger("postgresql://nobody@127.0.0.1:1/none") as ledger:
        with pytest.raises(psycopg.OperationalError, match="refused"):
            await ledger.begin("run_1", CALL)


async def test_a_call_waits_for_a_takeover_and_is_refused(ledger: PostgresLedger, postgres: PostgresServer) -> None:
    await ledger.begin("run_1", CALL, Claim(epoch=1))
    second = ToolCall(id="call_2", name="pay", arguments={}, dialect="native")
    refused = anyio.Event()

    async def begin() -> None:
        with pytest.raises(CallRefused, match="taken over"):
            await ledger.begin("run_1", second, Claim(epoch=1))
        refused.set()

    with other(ledger, postgres) as connection, other(ledger, postgres) as looking:
        connection.execute("UPDATE runs SET epoch = 2 WHERE scope = 'run_1'")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begin)
            while not looking.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchall():
                looking.rollback()
                await anyio.sleep(0.001)
            assert not refused.is_set()
            with anyio.move_on_after(0.01) as scope:  # a waiting call does not prevent a cancellation
                await ledger.begin("run_1", second, Claim(epoch=2))
            assert scope.cancelled_caught
            assert await ledger.begin("run_2", CALL) is None, "another run is not locked"
            connection.commit()
    assert [CALL] == [entry.call for entry in await ledger.entries("run_1")]


async def test_a_paused_process_locks_its_run_no_longer_than_its_lease(postgres: PostgresServer) -> None:
    """The server ends its transaction."""
    async with PostgresLedger(postgres.url, schema=f"st-{uuid4()}", lease=0.05) as ledger:
        await ledger.begin("run_1", CALL)
        with other(ledger, postgres) as connection:
            connection.cursor_factory = psycopg.RawCursor
            ledger._raise_epoch(connection, "run_1", 1)
            await ledger.fence("run_1", 1)
            with pytest.raises(psycopg.Error, match="idle-in-transaction"):
                connection.execute("SELECT 1")


async def test_two_ledgers_create_the_tables_together(postgres: PostgresServer) -> None:
    """Exactly one caller starts the call."""
    schema = f"st-{uuid4()}"
    begun: list[object] = []
    async with (
        PostgresLedger(postgres.url, schema=schema) as one,
        PostgresLedger(postgres.url, schema=schema) as two,
        anyio.create_task_group() as tasks,
    ):

        async def begin(ledger: PostgresLedger) -> None:
            begun.append(await ledger.begin("run_1", CALL))

        for ledger in [one, two] * 5:
            tasks.start_soon(begin, ledger)
    assert 1 == begun.count(None)
