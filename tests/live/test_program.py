"""The README's second program over a real model that makes no native call, which needs the extra `sdks`.

With the transport and the gateway a tool is called, and the answer is made from its result; without them nothing
is called.
"""

from __future__ import annotations

import subprocess
import sys

import anyio.to_thread
import pytest

from streamtools.gateway import app
from tests.support.readme import ROOT, read_blocks
from tests.support.serving import Served

_OF_A_BASE_MODEL = {"temperature": 0, "max_tokens": 80, "extra_body": {"stop": ["<|im_end|>"]}}
"""What it is told besides the program's own words: how to end, and examples, as the README says below the program."""

pytestmark = [pytest.mark.live, pytest.mark.anyio]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_program_of_the_readme(server: str) -> None:
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = next(each for each in read_blocks(page) if each.notes.get("sdk") == "pydantic-ai")
    plain, bare = "transport=ToolCallTransport(), ", 'OpenAIChatModel("local", provider=provider)'
    assert plain in block.text
    assert bare in block.text
    asked = block.text.replace(bare, f"{bare}, model_settings={_OF_A_BASE_MODEL}")
    program = asked.replace(plain, "transport=ToolCallTransport(few_shot=True), ")
    without = asked.replace(plain, "")

    async def run(program: str, url: str) -> str:
        code = program.replace("http://127.0.0.1:8080", url)
        told = await anyio.to_thread.run_sync(subprocess.check_output, [sys.executable, "-c", code])
        return str(told, "utf-8")

    async with Served(app(f"{server}/v1", few_shot=True)) as gateway:
        assert block.output == await run(program, server)
        assert block.output == await run(without, gateway.url)
    assert "get_weather(" not in await run(without, server)
