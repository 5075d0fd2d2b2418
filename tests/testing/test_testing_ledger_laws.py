"""The function `assert_ledger_laws`: each planted fault breaks the expected law."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import anyio.lowlevel
import pytest
from msgspec.structs import replace

from conformance.ledger_laws import assert_ledger_laws
from streamtools.calls import ToolCall
from streamtools.errors import CallRefused
from streamtools.json_values import write_json
from streamtools.tools import Claim, Entry, MemoryLedger, ToolOutcome
from streamtools.tools.ledger import NO_LEASE, call_key
from tests.support.cases import together
from tests.support.patching import with_clock

_NUMBERS = count()


class _BeginsAgain(MemoryLedger):
    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        entry = await super().begin(scope, call, claim)
        return None if entry is not None and entry.is_unknown else entry


class _ForgetsWhoHolds(MemoryLedger):
    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        return await super().begin(scope, call, replace(claim, holder=claim.holder and str(next(_NUMBERS))))


class _HasNoFence(MemoryLedger):
    async def fence(self, scope: str, epoch: int) -> None: ...


class _LooksFirstAndWritesLater(MemoryLedger):
    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        if claim.epoch < self._epoch_of(scope):
            raise CallRefused("the epoch is too old")
        for _ in range(4):  # trio wakes tasks in a random order; a fence must fall between in any order
            await anyio.lowlevel.checkpoint()
        return await super().begin(scope, call, replace(claim, epoch=max(claim.epoch, self._epoch_of(scope))))

    def _epoch_of(self, scope: str) -> int:
        select = "SELECT COALESCE(max(epoch), 0) FROM runs WHERE scope = ?"
        return int(self._connection.execute(select, (scope,)).fetchone()[0])


class _RefusesAtTheFenceOnly(MemoryLedger):
    def _raise_epoch(self, db: Any, scope: str, epoch: int) -> None:
        if epoch or not db.execute("SELECT 1 FROM runs WHERE scope = ?", (scope,)).fetchall():
            super()._raise_epoch(db, scope, epoch)


class _OverwritesOutcomes(MemoryLedger):
    async def finish(self, scope: str, outcome: ToolOutcome) -> None:
        overwrite = "UPDATE calls SET outcome = ?, ended = 0 WHERE key = ?"
        self._connection.execute(overwrite, (write_json(outcome), call_key(outcome.call)))


class _LetsAnybodyLeave(MemoryLedger):
    async def hold(self, scope: str, call: ToolCall, holder: str, seconds: float) -> None:
        select = "SELECT holder FROM calls WHERE key = ?"
        for (name,) in self._connection.execute(select, (call_key(call),)).fetchall():
            await super().hold(scope, call, name, seconds)


class _ResolvesWhatIsAtWork(MemoryLedger):
    async def resolve(self, scope: str, outcome: ToolOutcome) -> bool:
        is_there = bool(await self.entries(scope, unknown=True)) or await super().resolve(scope, outcome)
        await super().finish(scope, outcome)
        return is_there


class _ShowsAllOwners(MemoryLedger):
    def _sql(self, statement: str) -> str:
        return super()._sql(statement).replace("?1 IN (owner, '')", "?1 = ?1")


class _ForgetsWhatIsNamed(MemoryLedger):
    def _sql(self, statement: str) -> str:
        return super()._sql(statement).replace("ended <= ?1 AND until <= ?2", "ended <= ?1 AND ?2 = ?2")


class _KeepsForEver(MemoryLedger):
    def _sql(self, statement: str) -> str:
        return super()._sql(statement).replace("WHERE ended <= ?1 AND", "WHERE ended <= ?1 AND FALSE AND")


class _MixesRuns(MemoryLedger):
    async def begin(self, scope: str, call: ToolCall, claim: Claim = NO_LEASE) -> Entry | None:
        return await super().begin("run_1", call, claim)


FAULTS: list[tuple[type[MemoryLedger], str]] = [
    (_BeginsAgain, "A call begins once"),
    (_ForgetsWhoHolds, "While its holder renews the lease"),
    (_HasNoFence, "No call begins with an older epoch"),
    (_LooksFirstAndWritesLater, "If calls begin while a run is taken over"),
    (_RefusesAtTheFenceOnly, "No call begins with an older epoch"),
    (_OverwritesOutcomes, "A call begins once"),
    (_LetsAnybodyLeave, "While its holder renews the lease"),
    (_ResolvesWhatIsAtWork, "An outcome can be resolved once"),
    (_ShowsAllOwners, "Entries are listed"),
    (_ForgetsWhatIsNamed, "Ended and released entries expire"),
    (_KeepsForEver, "Ended and released entries expire"),
    (_MixesRuns, "A call with another run"),
]


@together(("kind", "law"), FAULTS, ids=[kind.__name__ for kind, _ in FAULTS])
async def test_a_planted_fault_breaks_the_expected_law(kind: type[MemoryLedger], law: str) -> None:
    @asynccontextmanager
    async def make(clock: Callable[[], float]) -> AsyncIterator[Any]:
        yield with_clock(kind(), clock)

    with pytest.raises(AssertionError, match=law):
        await assert_ledger_laws(make)
