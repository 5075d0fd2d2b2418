"""Conversations in a file: what the next server goes on with, and what is in the file no more."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from streamtools.apps.cli import main
from streamtools.apps.web.conversations import Conversations
from streamtools.apps.web.kept import ConversationFile
from tests.apps.test_cli_bad_input import complaint
from tests.support.answering import calling, opened, saying

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of uvicorn."""
    return "asyncio"


def content(path: Path) -> bytes:
    """Return all that is on the disk."""
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


async def written(path: Path, text: bytes) -> None:
    """Wait until it is."""
    with anyio.fail_after(20):
        while text not in content(path):
            await anyio.lowlevel.checkpoint()


async def test_the_next_server_goes_on(tmp_path: Path) -> None:
    """With the same events from any place, the same history, and for the same browser alone."""
    path = tmp_path / "kept.db"
    call = calling("look_up", city="Oslo")
    async with opened(saying("I look.\n\n", call), saying("It is 17 °C."), saying("Two."), keep=str(path)) as page:
        run = await page.ask("Oslo?")
        events = await page.events(run)
        other = (await page.tell("/runs", {"question": "Two?", "conversation": None})).json()
        await page.events(other["run"])
        bodies, cookies = page.provider.bodies, page.client.cookies
        first = (await page.known())["conversations"][1]["id"]
        await page.client.get("/conversation", params={"of": first})

    assert 0o600 == path.stat().st_mode & 0o777
    assert cookies["streamtools"].encode() not in content(path)
    async with opened(saying("Nice."), keep=str(path)) as page:
        assert ([], 404) == ((await page.known())["turns"], (await page.client.get(f"/runs/{run}/events")).status_code)
        page.client.cookies = cookies
        known = await page.known()
        assert ("", [{"run": run, "question": "Oslo?"}]) == (known["server"], known["turns"])
        assert [first, other["conversation"]] == [each["id"] for each in known["conversations"]]
        assert events == await page.events(run)
        assert events[3:] == await page.events(run, after=events[2]["seq"])
        await page.events(await page.ask("And?"))
        (told,) = page.provider.bodies
        assert [*bodies[1]["messages"], "It is 17 °C.", "And?"] == [
            *told["messages"][:-2],
            *(each["content"] for each in told["messages"][-2:]),
        ]


async def test_images_are_kept(tmp_path: Path) -> None:
    """A file of before there were any is read, too."""
    path, image = tmp_path / "kept.db", "data:image/gif;base64,R0lGODlhAQABAAAAACw="
    async with opened(saying("A dot."), keep=str(path)) as page:
        run = (await page.tell("/runs", {"question": "What?", "images": [image]})).json()["run"]
        await page.events(run)
        cookies = page.client.cookies
    for old, images in ((False, [image]), (True, [])):
        if old:
            with closing(sqlite3.connect(path)) as file:
                file.executescript("ALTER TABLE turns DROP COLUMN images; PRAGMA user_version = 1;")
        async with opened(saying("Yes."), keep=str(path)) as page:
            page.client.cookies = cookies
            assert images == (await page.client.get(f"/runs/{run}/images")).json()
            await page.events(await page.ask("Sure?"))
            assert bool(images) == (image in str(page.provider.bodies[0]["messages"][0]))


async def test_what_is_deleted_is_not_in_the_file(tmp_path: Path) -> None:
    """Nor is what another question took the place of, and what was used long ago."""
    path = tmp_path / "kept.db"
    async with opened(*(saying(f"{each} words.") for each in ("Old", "Secret", "Good")), keep=str(path)) as page:
        replaced = await page.ask("Old question?")
        await page.events(replaced)
        await page.events((await page.tell("/runs", {"question": "Why?", "replace": replaced})).json()["run"])
        await written(path, b"Secret words")
        bad = (await page.known())["conversation"]
        await page.events((await page.tell("/runs", {"question": "Well?", "conversation": None})).json()["run"])
        assert 200 == (await page.tell(f"/conversation/{bad}/delete")).status_code
    assert b"Good words" in content(path)
    for gone in (b"Old question", b"Old words", b"Secret words", b"Why?"):
        assert gone not in content(path), gone
    kept = ConversationFile(str(path))
    async with kept.writing():
        assert [] == Conversations(max_age=0, kept=kept).of("nobody")
    assert b"Good words" not in content(path)


async def test_what_broke_off_has_an_end(tmp_path: Path) -> None:
    """Also for who has seen more than was written; a call that waited is pending, the model is told what was said."""
    path, copy = tmp_path / "kept.db", tmp_path / "copy.db"
    async with opened(saying("I pay.\n\n", calling("pay", to="Ann", amount=5)), keep=str(path)) as page:
        run = await page.ask("Pay.")
        asked = await page.until(run, "approval-requested")
        await written(path, b"approval-requested")
        for end in ("", "-wal"):  # as a server leaves them that is killed
            shutil.copy(f"{path}{end}", f"{copy}{end}")
        cookies = page.client.cookies
    for _ in range(2):  # the end stays
        async with opened(saying("Well."), keep=str(copy)) as page:
            page.client.cookies = cookies
            *_, asks, _, _, done = await page.events(run)
            assert ("failed", ["pay"]) == (done["reason"], [each["name"] for each in done["pending"]])
            assert json.loads(asked) == asks
            assert done["seq"] > asks["seq"] + 1000
            assert 404 == (await page.tell(f"/runs/{run}/stop")).status_code
            if len((await page.known())["turns"]) == 1:
                await page.events(await page.ask("And?"))
                assert "I pay." in page.provider.bodies[0]["messages"][1]["content"]


async def test_a_disk_that_is_full_ends_no_answer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be written is in memory."""
    path = tmp_path / "kept.db"
    async with opened(saying("Hello."), keep=str(path)) as page:
        run = await page.ask("Hi")
        assert "done" == (await page.events(run))[-1]["type"]
    kept = ConversationFile(str(path))
    kept._db.execute("PRAGMA query_only = ON")
    kept.forget("none")
    async with kept.writing():
        pass
    assert "conversations_not_written" in caplog.text


def test_files_that_are_of_no_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Something else, a folder, one that another server uses, one of a later version."""
    other, later, used = (tmp_path / name for name in ("other.db", "later.db", "used.db"))
    (tmp_path / "words.txt").write_text("words, and no database, for longer than a header is" * 20)
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE things (x)")
    with sqlite3.connect(later) as db:
        db.execute("PRAGMA user_version = 9")
    db.close()
    holder = ConversationFile(str(used))
    for path in (tmp_path / "words.txt", tmp_path, other, later, used):
        assert main(["serve", "--port", "0", "--keep", str(path)])
        assert "--keep names no file of use" in complaint(capsys)
    holder._db.close()
    assert main(["serve", "--port", "0", "--keep", "x", "--redis", "redis://127.0.0.1:1"])
    assert "one of them" in complaint(capsys)
