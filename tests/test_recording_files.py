"""The file of a recording: who may read it, and what happens to what was there before."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from streamtools.recording.writing import open_anew


@pytest.mark.parametrize("name", ["answer.jsonl", "link.jsonl"])
def test_a_file_that_others_could_read(name: str, tmp_path: Path) -> None:
    """An older file is emptied, and read by its owner alone from then on; a link is followed, and stays one."""
    path = tmp_path / "answer.jsonl"
    path.write_text("old")
    path.chmod(0o666)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with open_anew(tmp_path / name) as file:
        assert (0o600, 0) == (stat.S_IMODE(path.stat().st_mode), path.stat().st_size)
        file.write(b"new")
    assert (b"new", True) == (path.read_bytes(), link.is_symlink())


def test_a_link_to_nothing(tmp_path: Path) -> None:
    """The file that a link names is made."""
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "made.jsonl")
    open_anew(link).close()
    assert 0o600 == stat.S_IMODE((tmp_path / "made.jsonl").stat().st_mode)


def test_a_file_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mode cannot be changed, nothing is written and nothing is lost."""
    path = tmp_path / "answer.jsonl"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(PermissionError):
        open_anew(path)
    assert "old" == path.read_text()


def test_a_system_without_fchmod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode is then changed by the name of the file."""
    path = tmp_path / "answer.jsonl"
    path.write_text("old")
    path.chmod(0o666)
    monkeypatch.delattr(os, "fchmod")
    open_anew(path).close()
    assert (0o600, "") == (stat.S_IMODE(path.stat().st_mode), path.read_text())
