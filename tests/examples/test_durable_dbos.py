"""The example `durable_dbos`, in processes that are killed."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from tests.examples.loading import EXAMPLES, call, piece, say
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.serving import read_frames

pytestmark = pytest.mark.sdk

SERVE = """
import os, signal, uvicorn
from dbos import DBOS

run_step = DBOS.run_step_async


async def run_step_and_die(options, step):
    async def die_at_the_end():
        await step()
        os.kill(os.getpid(), signal.SIGKILL)

    dies = os.environ["DIES"] if options["name"] == "pay" else ""
    result = await run_step(options, die_at_the_end if dies == "before the checkpoint" else step)
    if dies == "between steps":
        os.kill(os.getpid(), signal.SIGKILL)
    return result


if os.environ["DIES"] in ("before the checkpoint", "between steps"):
    DBOS.run_step_async = run_step_and_die
uvicorn.main()
"""


@asynccontextmanager
async def worker(folder: Path, **environment: str) -> AsyncIterator[tuple[Process, httpx.AsyncClient]]:
    """Run the example in a process, with its databases in a folder, and end it. Yields a client of it."""
    options = ("--app-dir", str(EXAMPLES), "--port", "0", "--no-access-log")
    command = [sys.executable, "-c", SERVE, "durable_dbos:app", *options]
    async with await anyio.open_process(command, cwd=folder, env=os.environ | environment, stdout=None) as process:
        assert process.stderr is not None
        log = TextReceiveStream(process.stderr)
        said = ""
        while (found := re.search(r"running on (\S+) ", said)) is None:
            said += await log.receive()
        cookies = {"visitor": "7b0c4d2e-58a1-4d0f-9a5e-6a1f0c3b2d11"}
        async with httpx.AsyncClient(base_url=found[1], cookies=cookies, trust_env=False) as client:
            yield process, client
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def read(client: httpx.AsyncClient, chat: str) -> list[dict[str, Any]]:
    """Return the events of the answer, when a process has continued it."""
    while True:
        response = await client.get(f"/chat/{chat}")
        if response.status_code != 404:
            return read_frames(response.content)


MOMENTS = ("in an answer", "at a deployment", "in a tool", "before the checkpoint", "between steps")


@pytest.mark.parametrize("dies", MOMENTS)
async def test_a_process_continues_the_chat_of_another(dies: str, tmp_path: Path) -> None:
    """The model is asked again only for the answer that was cut. No payment is sent twice."""
    begun, in_answer, in_tool = anyio.Event(), dies in MOMENTS[:2], dies == "in a tool"
    first = Loopback([begun, *call("pay", to="Ann", amount=5)._script])
    cut = [Loopback([piece("It is ")], hold=True)] if in_answer else []
    with anyio.fail_after(60):
        async with (
            Provider(first, *cut, say("It is done.")) as model,
            Provider(Loopback([b"{}"], hold=in_tool), Loopback([b"{}"])) as bank,
        ):
            servers = {"MODEL_URL": model.url, "BANK_URL": bank.url}
            async with worker(tmp_path, DIES=dies, **servers) as (process, client):
                asked = {"messages": [{"role": "user", "content": "Pay Ann."}]}
                chat = (await client.post("/chat", json=asked)).json()["chat"]
                begun.set()
                shown = not in_answer
                while not shown:  # 404 until the workflow has started its run
                    async with client.stream("GET", f"/chat/{chat}") as response:
                        async for line in response.aiter_lines():
                            if shown := "It is " in line:
                                break
                while in_tool and not bank.requests:
                    await anyio.lowlevel.checkpoint()
                if in_answer or in_tool:
                    process.send_signal(signal.SIGTERM if dies == "at a deployment" else signal.SIGKILL)
                await process.wait()
            async with worker(tmp_path, DIES="", **servers) as (_, client):
                events = await read(client, chat)
    assert "It is done." == "".join(each["text"] for each in events if each["type"] == "text").strip()
    assert ("done", "finished") == (events[-1]["type"], events[-1]["reason"])
    assert (2 + len(cut), 1) == (len(model.requests), len(bank.requests))
    (payment,) = [each for each in events if each["type"] in ("executed", "error")]
    told = "It is unknown whether it was sent." if in_tool else "paid 5 to Ann"
    assert told in (payment["message"] if in_tool else payment["result"])
    assert told in str(model.bodies[-1]["messages"])
