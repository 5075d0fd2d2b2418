"""The server of the page: refused requests, limits, and the headers of its responses."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator

import pytest

from streamtools.apps.web.app import MAX_BODY, make_documents
from tests.support.answering import browser, opened, saying

pytestmark = pytest.mark.asyncio_only


async def test_a_document_loads_no_other_files() -> None:
    """The policy contains the digests of its scripts and styles."""
    async with opened() as page:
        responses = [await page.client.get(path) for path in ("/", "/debugger")]

    policy = dict(each.partition(" ")[::2] for each in responses[0].headers["content-security-policy"].split("; "))
    assert "'none'" == policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"]
    assert "'self'" == policy["connect-src"]
    for response in responses:
        assert 200 == response.status_code
        without = re.sub(r"(?s)<script>.*?</script>", "", response.text)
        assert [] == re.findall(r"<[^>]+\s(?:src|srcset|on\w+|style)=", without)
        assert "sourceMappingURL" not in response.text
        assert len(response.content) < 500_000
    for tag in ("script", "style"):
        found = {each for response in responses for each in re.findall(rf"(?s)<{tag}>(.*?)</{tag}>", response.text)}
        digests = [f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in found]
        assert sorted(digests) == sorted(policy[f"{tag}-src"].split())


@pytest.mark.parametrize("path", ["/", "/debugger", "/conversation", "/runs/none/events", "/nowhere"])
async def test_every_response_has_the_security_headers(path: str) -> None:
    async with opened() as page:
        headers = (await page.client.get(path)).headers
    assert "nosniff" == headers["x-content-type-options"]
    assert "no-referrer" == headers["referrer-policy"]
    assert "same-origin" == headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"]
    assert "DENY" == headers["x-frame-options"]
    assert "no-store" == headers["cache-control"]
    assert make_documents().policy == headers["content-security-policy"]


KNOWN = ("127.0.0.1:{port}", "localhost:{port}", "LOCALHOST", "[::1]:{port}", "[::1]", "192.0.2.7", "known.example")
UNKNOWN = [
    *("evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example@localhost"),
    *("[::1", "[::1].evil.test", "[::1].evil.test:{port}", "localhost:x", "localhost/evil", "localhost.", ""),
]


@pytest.mark.parametrize(("host", "status"), [*((host, 200) for host in KNOWN), *((host, 421) for host in UNKNOWN)])
async def test_an_unknown_host_name_is_refused(host: str, status: int) -> None:
    """This prevents DNS rebinding."""
    async with opened(hosts=["known.example"]) as page:
        response = await page.client.get("/conversation", headers={"host": host.format(port=page.server.port)})
    assert status == response.status_code


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "Application/JSON; charset=utf-8"}, 201),
    ],
)
@pytest.mark.parametrize("path", ["/runs", "/runs/none/stop", "/runs/none/calls/call"])
async def test_a_post_request_needs_the_origin_and_type_of_the_page(
    path: str, headers: dict[str, str], status: int
) -> None:
    async with opened(saying("Hello.")) as page:
        headers = {"content-type": "application/json", **headers}
        response = await page.client.post(path, content=b'{"question":"Hi"}', headers=headers)
    if status == 201 and "none" in path:
        status = 400 if path.endswith("call") else 404
    assert status == response.status_code
    assert status == 201 or response.text


async def test_a_long_body_is_refused() -> None:
    """A request may state its length or not."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"x" * (MAX_BODY // 4)

    async with opened(saying("Hello.")) as page:
        said = await page.post("/runs", {"question": "x" * MAX_BODY})
        came = await page.client.post("/runs", content=chunks(), headers={"content-type": "application/json"})
        fits = await page.post("/runs", {"question": "x" * (MAX_BODY - 20)})

    assert [413, 413, 201] == [each.status_code for each in (said, came, fits)]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"question":1}', b'{"question":" "}', b"{}", b'{"suggestion":"weather"}',
             b'{"question":"a","more":1}', b"[" * 100_000]
)  # fmt: skip
async def test_an_invalid_body_is_refused(body: bytes) -> None:
    async with opened() as page:
        response = await page.client.post("/runs", content=body, headers={"content-type": "application/json"})
        assert 400 == response.status_code
        assert response.text
        assert [] == page.provider.requests


async def test_a_call_id_may_contain_a_slash() -> None:
    async with opened(saying("Hello.")) as page:
        run = await page.ask("Hi")
        decided = await page.post(f"/runs/{run}/calls/a%2Fb", {"decision": "deny"})
    assert (409, "call 'a/b' does not wait for a decision") == (decided.status_code, decided.text)


async def test_a_refused_question_stores_no_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversations of other browsers stay."""
    monkeypatch.setattr("streamtools.apps.web.app.MAX_RUNNING", 1)
    async with opened(saying(hold=True)) as page:
        run = await page.ask("Hi")
        async with browser(page.server) as other:
            refused = [await other.post("/runs", json={"question": "Hi"}) for _ in range(3)]
        await page.post(f"/runs/{run}/stop")
        known = await page.state()

    assert [503, 503, 503] == [each.status_code for each in refused]
    assert all("Too many answers" in each.text and "set-cookie" not in each.headers for each in refused)
    assert [run] == [turn["run"] for turn in known["turns"]]


async def test_unknown_paths_and_methods_are_refused() -> None:
    async with opened() as page:
        nowhere, wrong = await page.client.get("/nowhere"), await page.client.get("/runs")
    assert [(404, "Not Found"), (405, "Method Not Allowed")] == [
        (each.status_code, each.text) for each in (nowhere, wrong)
    ]


async def test_the_cookie_is_restricted_to_the_page() -> None:
    """No script and no other site can use it."""
    async with opened(saying("Hello.")) as page:
        response = await page.post("/runs", {"question": "Hi"})
        cookie = response.headers["set-cookie"]
        run = response.json()["run"]
        async with browser(page.server) as other:
            strange = [await other.get(f"/runs/{run}/events"), await other.post(f"/runs/{run}/stop", json={})]
            decided = await other.post(f"/runs/{run}/calls/c", json={"decision": "deny"})
            empty = (await other.get("/conversation")).json()["turns"]

    assert re.match(r"streamtools=[\w-]{32}; HttpOnly; Path=/; SameSite=strict", cookie)
    assert [404, 404, 404] == [each.status_code for each in (*strange, decided)]
    assert [] == empty
