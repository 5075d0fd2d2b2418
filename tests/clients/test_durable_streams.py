"""Durable Streams' own suite for servers: all that it says of reading, and a reason for each test that is left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.clients.programs import run_node
from tests.support.durable_server import durable_app
from tests.support.serving import Served

pytestmark = [pytest.mark.sdk, pytest.mark.anyio]

FORKS = "a stream that begins as another does is made by writers, and a run is nobody's fork"
AGES = "how long a stream is kept is told by who makes it; a run is kept as long as `Runs` keeps it"
PRODUCERS = "numbers of writers, by which appends that come twice are known; a run has one writer, and no HTTP"
SEQUENCES = "`Stream-Seq`, by which a writer says in which order it writes"
LEFT_OUT = {
    "Fork - Creation": FORKS,
    "Fork - Reading": FORKS,
    "Fork - Appending": FORKS,
    "Fork - Recursive": FORKS,
    "Fork - Live Modes": FORKS,
    "Fork - Deletion and Lifecycle": FORKS,
    "Fork - TTL and Expiry": FORKS,
    "Fork - JSON Mode": FORKS,
    "Fork - Edge Cases": FORKS,
    "TTL and Expiry Validation": AGES,
    "TTL and Expiry Edge Cases": AGES,
    "TTL Expiration Behavior": AGES,
    "HEAD Metadata Edge Cases > should return TTL metadata if configured": AGES,
    "HEAD Metadata Edge Cases > should return Expires-At metadata if configured": AGES,
    "Idempotent Producer Operations": PRODUCERS,
    "Stream Closure > Idempotent Producers with Stream Closure": PRODUCERS,
    "Stream Closure > Edge Cases > close-with-different-body-dedup: Retry close with different body deduplicates to "
    "original": PRODUCERS,
    "Append Operations > should enforce sequence ordering with seq": SEQUENCES,
    "HTTP Protocol > should enforce sequence ordering": SEQUENCES,
    'HTTP Protocol > should enforce lexicographic seq ordering ("2" then "10" rejects)': SEQUENCES,
    "HTTP Protocol > should reject duplicate seq values": SEQUENCES,
    "Protocol Edge Cases > should enforce case-sensitive seq ordering": SEQUENCES,
    "Property-Based Tests (fast-check) > Sequence Ordering Properties > out-of-order seq values are rejected": (
        SEQUENCES
    ),
    "Reserved subscription APIs": "an extension, by which a server calls others; the suite runs it only where asked",
}
"""What a group of tests, or one test, is about, for which there is nothing in reading; by its names in the suite."""


async def test_the_suite(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs and passes, but for those that are named, of which each is there."""
    async with Served(durable_app()) as server:
        monkeypatch.setenv("SERVER", server.url)
        named = "|".join(re.escape(name.replace(" > ", " ")) for name in LEFT_OUT)
        told = folder / "durable_streams.json"
        vitest = Path("node_modules", "vitest", "vitest.mjs")
        options = [
            "--root",
            ".",
            "--reporter=json",
            "--testTimeout=60000",
            f"--outputFile={told.name}",
            "-t",
            f"^(?!({named}))",
        ]
        told.unlink(missing_ok=True)
        try:
            await anyio.to_thread.run_sync(run_node, folder, vitest, "run", "durable_streams.test.mjs", *options)
        finally:
            (file,) = json.loads(told.read_text())["testResults"]
            ended = {" > ".join((*each["ancestorTitles"], each["title"])): each for each in file["assertionResults"]}
            failed = {name: each["failureMessages"] for name, each in ended.items() if each["status"] == "failed"}
            assert {} == failed
    left = {name for name, each in ended.items() if each["status"] != "passed"}
    assert {name for name in left if not name.startswith(tuple(LEFT_OUT))} == set()
    assert {each for each in LEFT_OUT if not any(name.startswith(each) for name in left)} == set()
    assert 150 < len(ended) - len(left)
