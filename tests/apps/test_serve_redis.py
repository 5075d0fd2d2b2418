"""`streamtools serve --redis URL`: several processes behind one address, each of which knows every conversation."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from streamtools.apps.cli import main
from tests.apps.test_cli_bad_input import complaint
from tests.apps.test_serve import started
from tests.support.answering import opened, saying
from tests.support.redis_server import RedisServer

pytestmark = pytest.mark.servers

ASKED = {"suggestion": "postcard"}


@pytest.fixture
def anyio_backend() -> str:
    """The event loop of uvicorn."""
    return "asyncio"


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """The URL of a server."""
    with RedisServer() as server:
        yield server.url


class Browser:
    """A browser, each of whose requests goes over a connection of its own, and so to whichever process takes it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies = httpx.Cookies()

    @contextmanager
    def open(self) -> Iterator[httpx.Client]:
        """Connect."""
        with httpx.Client(
            base_url=self.url, headers={"origin": self.url}, cookies=self.cookies, trust_env=False, timeout=60
        ) as client:
            yield client
            self.cookies = client.cookies  # without those that were deleted

    def get(self, path: str) -> httpx.Response:
        """Get a page."""
        with self.open() as client:
            return client.get(path)

    def post(self, path: str, body: Any = None) -> httpx.Response:
        """Say something."""
        with self.open() as client:
            return client.post(path, json=body or {})

    def until(self, run: str, kind: str) -> dict[str, Any]:
        """Return the first event of this type."""
        with self.open() as client, client.stream("GET", f"/runs/{run}/events") as response:
            for line in response.iter_lines():
                if line.startswith("data:") and (event := json.loads(line[5:]))["type"] == kind:
                    return dict(event)
        raise AssertionError(f"no {kind} came")


def test_processes_share_their_conversations(redis: str) -> None:
    """What one is asked, any answers for: what it says, what is decided, that it is stopped, what was said before."""
    with started("--redis", redis, "--workers", "3", "--speed", "0") as (process, url):
        page = Browser(url)
        run = page.post("/runs", ASKED).json()["run"]
        asked = page.until(run, "approval-requested")
        assert [409] * 6 == [page.post("/runs", ASKED).status_code for _ in range(6)]
        path = f"/runs/{run}/calls/{asked['call']['id']}"
        shown = {"approve": True, "shown": json.dumps(asked)}
        assert [200, 409, 409] == [page.post(path, shown).status_code for _ in range(3)]
        assert "finished" == page.until(run, "done")["reason"]
        for _ in range(10):
            known = page.get("/conversation").json()
            assert ("", 0, [run]) == (known["server"], known["dropped"], [each["run"] for each in known["turns"]])
        again = page.post("/runs", ASKED).json()["run"]
        page.until(again, "approval-requested")
        assert [run, again] == [each["run"] for each in page.get("/conversation").json()["turns"]]
        assert {"reason": "cancelled"} == page.post(f"/runs/{again}/stop").json()
        assert [404] * 6 == [Browser(url).get(f"/runs/{run}/events").status_code for _ in range(6)]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        with pytest.raises(httpx.ConnectError):  # the others have gone, too
            httpx.get(url, trust_env=False)

    with started("--redis", redis) as (_, url):  # and another server goes on with what there is
        page.url = url
        assert [run, again] == [each["run"] for each in page.get("/conversation").json()["turns"]]
        assert "cancelled" == page.until(again, "done")["reason"]
        other = page.post("/runs", {"suggestion": "no-call", "conversation": None}).json()
        page.until(other["run"], "done")
        first, second = (each["id"] for each in page.get("/conversation").json()["conversations"])
        assert other["conversation"] == first
        shown = page.get(f"/conversation?of={second}").json()
        assert [run, again] == [each["run"] for each in shown["turns"]]
        assert [200, 404] == [page.post(f"/conversation/{second}/delete").status_code for _ in range(2)]
        assert [404, 404] == [page.get(f"/runs/{each}/events").status_code for each in (run, again)]
        assert [first] == [each["id"] for each in page.get("/conversation").json()["conversations"]]
        assert [200] == [page.get(f"/runs/{each}/events").status_code for each in (other["run"],)]


def test_a_question_is_asked_anew_in_its_place(redis: str) -> None:
    """Whichever process is asked knows what stands there now."""
    with started("--redis", redis, "--workers", "2", "--speed", "0") as (_, url):
        page = Browser(url)
        runs: list[str] = []
        for replaced in (None, None, None, 1):
            asked = {"suggestion": "no-call"} | ({} if replaced is None else {"replace": runs[replaced]})
            runs.append(page.post("/runs", asked).json()["run"])
            page.until(runs[-1], "done")
        for _ in range(6):
            assert [runs[0], runs[3]] == [each["run"] for each in page.get("/conversation").json()["turns"]]
        assert 409 == page.post("/runs", ASKED | {"replace": runs[2]}).status_code
        last = page.post("/runs", ASKED).json()
        page.until(last["run"], "approval-requested")  # it goes on
        assert 200 == page.post(f"/conversation/{last['conversation']}/delete").status_code
        assert [[]] * 6 == [page.get("/conversation").json()["conversations"] for _ in range(6)]
        assert 201 == page.post("/runs", ASKED).status_code


@pytest.mark.anyio
async def test_images_are_kept(redis: str) -> None:
    """With the run."""
    image = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
    async with opened(saying("A dot."), saying("Yes."), redis=redis) as page:
        run = (await page.tell("/runs", {"question": "What?", "images": [image]})).json()["run"]
        await page.events(run)
        assert [image] == (await page.client.get(f"/runs/{run}/images")).json()
        await page.events(await page.ask("Sure?"))
        assert image in str(page.provider.bodies[1]["messages"][0])


def test_a_server_that_is_killed_takes_its_workers_along(redis: str) -> None:
    """Nothing goes on to listen there."""
    with started("--redis", redis, "--workers", "2") as (process, url):
        process.kill()
        process.communicate(timeout=60)  # their outputs are this one's
        with pytest.raises(httpx.ConnectError):
            httpx.get(url, trust_env=False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--workers", "2"], "needs a --redis"),
        (["--workers", "0", "--redis", "redis://127.0.0.1:1"], "from 1 to 64"),
        (["--redis", "redis://:secret@127.0.0.1:1"], "no server of use: ConnectionError"),
        (["--redis", "file:///x"], "no server of use: ValueError"),
    ],
)
def test_a_command_line_that_is_of_no_use(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    """It is refused in one line, without a password."""
    assert main(["serve", "--port", "0", *arguments])
    said = complaint(capsys)
    assert told in said
    assert "secret" not in said
