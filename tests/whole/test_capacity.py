"""The plan of `benchmarks/capacity.py`, from given costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.capacity import Costs, Load, carried, plan

COSTS = Costs(
    driving=300e-6,
    reading=200e-6,
    redis=50e-6,
    from_provider=200.0,
    redis_traffic=1_000.0,
    to_reader=100.0,
    stored_run=6_000.0,
    stored_delta=100.0,
    stream=80_000.0,
)
LOAD = Load(deltas=20.0, seconds=20.0, keep=180.0, used=0.5, process_gb=2.0, redis_gb=23.0, gbit=8.0)


def test_a_unit_carries_what_fits_into_each_resource() -> None:
    assert {resource: round(streams) for resource, streams in carried(COSTS, LOAD).items()} == {
        "process: processor": 50,  # of 20 deltas, 0.5 ms each, in half a second
        "process: memory": 12_500,
        "Redis: processor": 500,
        "Redis: memory": 25_000,  # ten runs of 46 kB for each open stream
        "Redis: network": 25_000,
    }
    assert [20, 2, 0.032, 0.16, 0.016] == [round(each, 6) for each in plan(COSTS, LOAD, 1_000).values()]


@pytest.mark.parametrize(
    ("cost", "scarce", "other"),
    [
        ("driving", "process: processor", "Redis"),
        ("reading", "process: processor", "Redis"),
        ("stream", "process: memory", "Redis"),
        ("redis", "Redis: processor", "process"),
        ("stored_run", "Redis: memory", "process"),
        ("stored_delta", "Redis: memory", "process"),
        ("redis_traffic", "Redis: network", "process"),
    ],
)
def test_the_scarcest_resource_decides(cost: str, scarce: str, other: str) -> None:
    dear = replace(COSTS, **{cost: getattr(COSTS, cost) * 1e5})
    limits, needed = carried(dear, LOAD), plan(dear, LOAD, 1_000)
    assert scarce == min(limits, key=lambda resource: limits[resource])
    assert math.ceil(1_000 / limits[scarce]) == needed[scarce.partition(":")[0]]
    assert plan(COSTS, LOAD, 1_000)[other] == needed[other]
