"""Streams that run as runs, with one to three readers that leave and reconnect."""

from __future__ import annotations

import random
from collections import Counter

import anyio

from benchmarks.soaking.house import House, decide
from benchmarks.soaking.plans import Plan
from benchmarks.soaking.witness import Witness, Wrong
from streamtools.runs import Run

_WAYS = ("break", "leave", "cancel", "forget", "detach")


async def follow_run(house: House, plan: Plan) -> None:
    """Start a run and follow it to its end. Raises `Wrong`."""
    rng = random.Random(plan.seed + 3)
    asks = rng.random() < 0.5
    stops_at = rng.randint(1, 30) if rng.random() < 0.15 else None
    ran: Counter[str] = Counter()
    run = await house.runs.start(house.answer(plan, ran, asks=asks), owner=f"owner {plan.seed % 7}")
    followers = [
        _Follower(
            run, Witness(plan, asks=asks, ran=ran), random.Random(plan.seed + place), stops_at if not place else None
        )
        for place in range(rng.choice((1, 1, 2, 3)))
    ]
    async with anyio.create_task_group() as group:
        for follower in followers:
            group.start_soon(follower.follow, asks and follower is followers[0])
    result = await run.wait()
    for follower in followers:
        follower.witness.close(left=followers[0].stopped)
        follower.witness.check_result(result)
    house.tally.add(followers[0].witness, "run stopped" if followers[0].stopped else None)
    house.tally.events += sum(follower.witness.count for follower in followers[1:])
    house.tally.resumed += sum(follower.resumed for follower in followers)


class _Follower:
    """A reader with several connections in sequence."""

    def __init__(self, run: Run, witness: Witness, rng: random.Random, stops_at: int | None) -> None:
        self.witness = witness
        self.stopped = False
        self.resumed = -1
        self._run = run
        self._rng = rng
        self._stops_at = stops_at

    async def follow(self, decides: bool) -> None:
        """Read to the end."""
        position = 0
        async with anyio.create_task_group() as group:
            while self.witness.done is None:
                self.resumed += 1
                position = await self._connect(position, decides, group)

    async def _connect(self, position: int, decides: bool, group: anyio.abc.TaskGroup) -> int:
        """Read some events after a position. Returns the new position."""
        way, many = self._rng.choice(_WAYS), self._rng.randint(1, 25)
        events = self._run.attach(position)
        with anyio.CancelScope() as scope:
            async for event in events:
                self.witness.feed(event)
                if decides:
                    await decide(self._run, event, late=self.stopped)
                if self._stops_at is not None and self.witness.count >= self._stops_at:
                    self._stops_at, self.stopped = None, True
                    group.start_soon(self._run.stop)
                many -= 1
                if not many and way == "cancel":
                    scope.cancel()
                elif not many and way == "detach":
                    group.start_soon(events.detach)
                elif not many:
                    break
        if way == "leave":
            await events.detach()
        if events.position != self.witness.count:
            raise Wrong(f"{events.position} is the position behind {self.witness.count} events")
        return events.position
