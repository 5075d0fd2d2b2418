"""The page conformance/README.md: its commands print the output that it shows, and its tables match the suite."""

from __future__ import annotations

import re
import shlex
import socket
import sys
from pathlib import Path

import pytest

from conformance import FAULTS, cases
from conformance.__main__ import main
from tests.support.readme import ROOT, read_blocks, read_tables, write_table
from tests.support.text_gateway import gateway

TEXT = (ROOT / "conformance" / "README.md").read_text(encoding="utf-8")
BLOCKS = read_blocks(TEXT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the files of the page."""
    for block in BLOCKS:
        if "file" in block.notes:
            (tmp_path / block.notes["file"]).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def arguments(command: str) -> list[str]:
    """Return the arguments of a command of the page."""
    words = shlex.split(command.removeprefix("$ "))
    assert ["python", "-m", "conformance"] == words[:3]
    return [word.replace("python ", f"{sys.executable} ") for word in words[3:]]


def test_commands_print_the_output_of_the_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For a function, a program and a server, with the addresses of this test."""
    for block in (block for block in BLOCKS if block.language == "console"):
        if "--server" in block.text:
            with socket.create_server(("127.0.0.1", 0)) as free:
                listen = f"127.0.0.1:{free.getsockname()[1]}"
            with gateway([f"http://{listen}/v1"]) as url:
                command = block.text.replace("http://127.0.0.1:8000/v1", url).replace("127.0.0.1:9311", listen)
                main(arguments(command))
        else:
            main(arguments(block.text))
        assert block.output == capsys.readouterr().out, block.heading


def test_the_commands_write_cases(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in (line for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()):
        assert 0 == main(
            [*arguments(line.partition(" > ")[0]), *(["--dialect", "raw_json"] if "cases" in line else [])]
        )
    assert capsys.readouterr().out.count("\n") > 100


def test_the_tables_match_the_suite() -> None:
    """The faults, the rules, and the number of cases, all of which pass. The figures of peers are not checked."""
    assert read_tables(TEXT)["faults"] == write_table(
        ["fault", "what it is"], [[f"`{key}`", FAULTS[key]] for key in FAULTS]
    )
    made = list(cases(every_place=False))
    rules = [line for line in TEXT.splitlines() if line.startswith("| `")]
    assert {case.rule for case in made} <= set(re.findall("`([^`]+)`", "".join(rules)))
    (row,) = re.findall(r"^\| streamtools .* \|$", TEXT, re.MULTILINE)
    assert [str(len(made))] * 3 + ["–"] * 6 == row.strip("| ").split(" | ")[1:]
