"""Fixtures of the front-end client tests: the folder with the programs and their packages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.clients.programs import install

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".cache" / "clients"


@pytest.fixture(scope="session")
def folder() -> Path:
    """The folder with the programs, and with the packages of `package.json` installed."""
    install(HERE / "package.json", FOLDER)
    for program in HERE.glob("*.mjs"):
        shutil.copy(program, FOLDER)
    return FOLDER


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of uvicorn, which serves these tests."""
    return "asyncio"
