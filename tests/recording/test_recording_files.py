"""The permissions of recordings, and the positions of their exchanges."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from streamtools.recording.files import create_private_file, find_exchanges, load_exchanges, read_recordings


@pytest.mark.parametrize("name", ["answer.jsonl", "link.jsonl"])
def test_an_existing_file_becomes_private(name: str, tmp_path: Path) -> None:
    """A symbolic link is followed."""
    path = tmp_path / "answer.jsonl"
    path.write_text("old")
    path.chmod(0o666)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    with create_private_file(tmp_path / name) as file:
        assert (0o600, 0) == (stat.S_IMODE(path.stat().st_mode), path.stat().st_size)
        file.write(b"new")
    assert (b"new", True) == (path.read_bytes(), link.is_symlink())


def test_the_target_of_a_link_is_created(tmp_path: Path) -> None:
    link = tmp_path / "link.jsonl"
    link.symlink_to(tmp_path / "made.jsonl")
    create_private_file(link).close()
    assert 0o600 == stat.S_IMODE((tmp_path / "made.jsonl").stat().st_mode)


def test_a_file_of_another_user_is_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "answer.jsonl"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(PermissionError):
        create_private_file(path)
    assert "old" == path.read_text()


@pytest.mark.parametrize(
    "body", [{"end": 1}, {"end": "end"}, {"tool": {"end": "2026-01-01", "streamtools": "recording"}}]
)
def test_a_body_may_contain_the_keys_of_other_lines(body: dict[str, object], tmp_path: Path) -> None:
    head = {"streamtools": "recording", "version": 1, "source": "openai"}
    asked = {"request": {"method": "POST", "url": "http://x/", "body": body}}
    lines = [head | asked, {"at": 1, "text": "data: x\n\n"}, {"at": 2, "end": "end"}]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *lines]))
    assert [True, True] == [place.has_end for place in find_exchanges(path)]
    assert 2 == len(load_exchanges(path)) == len(read_recordings(path))
