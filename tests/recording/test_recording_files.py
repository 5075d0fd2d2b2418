"""The file of a recording: who may read it, what happens to what was there before, and where its exchanges are."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from streamtools.recording.reader import exchanges_of, find_exchanges, read_recordings
from streamtools.recording.writer import create_private_file


@pytest.mark.parametrize("name", ["answer.jsonl", "link.jsonl"])
def test_a_file_that_others_could_read(name: str, tmp_path: Path) -> None:
    """An older file is emptied, and read by its owner alone from then on; a link is followed, and stays one."""
    path = tmp_path / "answer.jsonl"
    path.write_text("old")
    path.chmod(0o666)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with create_private_file(tmp_path / name) as file:
        assert (0o600, 0) == (stat.S_IMODE(path.stat().st_mode), path.stat().st_size)
        file.write(b"new")
    assert (b"new", True) == (path.read_bytes(), link.is_symlink())


def test_a_link_to_nothing(tmp_path: Path) -> None:
    """The file that a link names is made."""
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "made.jsonl")
    create_private_file(link).close()
    assert 0o600 == stat.S_IMODE((tmp_path / "made.jsonl").stat().st_mode)


def test_a_file_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mode cannot be changed, nothing is written and nothing is lost."""
    path = tmp_path / "answer.jsonl"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(PermissionError):
        create_private_file(path)
    assert "old" == path.read_text()


def test_a_system_without_fchmod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is then changed by the name of the file."""
    path = tmp_path / "answer.jsonl"
    path.write_text("old")
    path.chmod(0o666)
    monkeypatch.delattr(os, "fchmod")
    create_private_file(path).close()
    assert (0o600, "") == (stat.S_IMODE(path.stat().st_mode), path.read_text())


@pytest.mark.parametrize(
    "body", [{"end": 1}, {"end": "end"}, {"tool": {"end": "2026-01-01", "streamtools": "recording"}}]
)
def test_a_request_with_a_key_that_an_end_line_has(body: dict[str, object], tmp_path: Path) -> None:
    """It is the head of another exchange all the same, with an end of its own."""
    head = {"streamtools": "recording", "version": 1, "source": "openai"}
    asked = {"request": {"method": "POST", "url": "http://x/", "body": body}}
    lines = [head | asked, {"at": 1, "text": "data: x\n\n"}, {"at": 2, "end": "end"}]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *lines]))

    assert [True, True] == [place.has_end for place in find_exchanges(path)]
    assert 2 == len(exchanges_of(path)) == len(read_recordings(path))
