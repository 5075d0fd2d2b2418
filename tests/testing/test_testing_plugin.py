"""The pytest plugin. Each test writes a project and runs pytest in it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import httpcore  # noqa: F401  otherwise each run of pytester imports it again
import httpx  # noqa: F401  see above
import pytest

import streamtools.testing.recording_fixture  # noqa: F401  see above
from streamtools.recording import read_recordings, shipped
from tests.support.loopback import Loopback
from tests.support.provider import Provider, serving

pytest_plugins = ["pytester"]

CHUNKS = [b'data: {"choices":[{"delta":{"content":"Hel"}}]}\n\ndata: {"cho', b'ices":[{"delta":{"content":"lo"}}]}\n\n']
END = [b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"]

ASK = """
    import httpx, pytest

    def ask(recording, body="hello"):
        with httpx.Client(transport=recording.transport) as client:
            return client.post("{url}", json={{"say": body}}).text
"""


@pytest.fixture(autouse=True)
def without_other_plugins(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable plugins of other packages."""
    monkeypatch.setenv(
        "PYTEST_ADDOPTS", "-p no:valkey -p no:faker -p no:hypothesispytest -p no:xdist -p no:xdist.looponfail"
    )


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that sends a short stream for each request."""
    with serving(Loopback(CHUNKS + END)) as server:
        yield server


def run(pytester: pytest.Pytester, *options: str, **outcomes: int) -> pytest.RunResult:
    """Run pytest, and check the outcomes."""
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(**outcomes)
    return result


def write(pytester: pytest.Pytester, provider: Provider, tests: str, name: str = "test_chat") -> Path:
    """Write a test module with a function `ask`. Return the folder of its recordings."""
    pytester.makepyfile(**{name: ASK.format(url=provider.url) + tests})
    return pytester.path / "recordings" / name


def record(pytester: pytest.Pytester, provider: Provider, requests: str = "ask(recording)") -> Path:
    """Record the requests of a test. Return the folder of its recordings."""
    folder = write(pytester, provider, f"\n    def test_hello(recording): {requests}")
    run(pytester, "--record-streams=once", passed=1)
    return folder


def sent_bodies(path: Path) -> list[object]:
    """Return the bodies of the requests in a recording."""
    return [each.head.request and each.head.request.body for each in read_recordings(path)]


def test_a_missing_recording_is_reported(pytester: pytest.Pytester, provider: Provider) -> None:
    """The message says how to record the test."""
    write(pytester, provider, "\n    def test_hello(recording): ask(recording)")
    result = run(pytester, errors=1)
    how = "`pytest --record-streams=once 'test_chat.py::test_hello'` records the requests of*"
    result.stdout.fnmatch_lines([f"recordings/test_chat/test_hello.jsonl does not exist: {how}"])
    assert [] == provider.requests


def test_once_records_a_missing_recording(pytester: pytest.Pytester, provider: Provider) -> None:
    """Later runs replay it."""
    folder = write(pytester, provider, "\n    def test_hello(recording): assert 'Hel' in ask(recording)")

    run(pytester, "--record-streams=once", passed=1)
    first = (folder / "test_hello.jsonl").read_bytes()
    run(pytester, "--record-streams=once", passed=1)
    write(pytester, provider, "\n    def test_hello(recording): ask(recording); assert recording.path.exists()")
    run(pytester, passed=1)

    assert first == (folder / "test_hello.jsonl").read_bytes()
    assert 1 == len(provider.requests)
    (recorded,) = read_recordings(folder / "test_hello.jsonl")
    assert b"".join(CHUNKS + END) == recorded.data
    assert 0o600 == stat.S_IMODE((folder / "test_hello.jsonl").stat().st_mode)
    assert ["test_hello.jsonl"] == [each.name for each in folder.iterdir()]


def test_a_recording_is_replaced(pytester: pytest.Pytester, provider: Provider) -> None:
    folder = record(pytester, provider)
    write(pytester, provider, "\n    def test_hello(recording): ask(recording, 'bye')")
    run(pytester, "--record-streams=rewrite", passed=1)
    run(pytester, passed=1)
    assert [{"say": "bye"}] == sent_bodies(folder / "test_hello.jsonl")
    assert 2 == len(provider.requests)


def test_an_unrecorded_request_fails_the_test(pytester: pytest.Pytester, provider: Provider) -> None:
    """Also if the backend hides the error."""
    record(pytester, provider)
    swallowed = """
    def test_hello(recording):
        ask(recording)
        with pytest.raises(Exception):
            ask(recording, "bye")
    """
    write(pytester, provider, swallowed)

    result = run(pytester, failed=1)
    how = "`pytest --record-streams=rewrite 'test_chat.py::test_hello'` records all requests again"
    result.stdout.fnmatch_lines(["*is not recorded in*", "*bye*hello*", how])


@pytest.mark.parametrize(("mark", "passed"), [("", 0), ("@pytest.mark.recording(unplayed='ignore')", 1)])
@pytest.mark.parametrize(
    ("requests", "option", "message"),
    [
        ("ask(recording)", "none", "*recorded but not requested:*POST*"),
        ("httpx.get('{url}')", "none", "the test did not use its recording: *"),
        *(
            pytest.param("httpx.get('{url}')", each, "the test did not use its recording: *", marks=pytest.mark.deep)
            for each in ("once", "rewrite")
        ),
    ],
)
def test_an_exchange_that_is_not_requested_fails_the_test(
    mark: str, passed: int, requests: str, option: str, message: str, pytester: pytest.Pytester, provider: Provider
) -> None:
    record(pytester, provider, "ask(recording); ask(recording, 'bye')")
    write(pytester, provider, f"\n    {mark}\n    def test_hello(recording): {requests.format(url=provider.url)}")
    result = run(pytester, f"--record-streams={option}", passed=passed, failed=1 - passed)
    if not passed:
        result.stdout.fnmatch_lines([message])


NAMED = """
    from streamtools.testing import every_cut

    @every_cut
    @pytest.mark.recording("test_hello")
    def test_cuts(recording): ask(recording)

    @pytest.mark.recording("test_hello", reset_after=20)
    def test_fault(recording): ask(recording)

    @pytest.mark.recording(reset_after=20)
    def test_own(recording): ask(recording)

    @pytest.mark.recording("nobody")
    def test_nobody(recording): ask(recording)

    def test_hello(recording): ask(recording)
"""


def test_the_message_names_the_test_that_records(pytester: pytest.Pytester, provider: Provider) -> None:
    """Several tests may use one recording."""
    write(pytester, provider, NAMED)

    result = run(pytester, "-p", "no:randomly", errors=7 + 4)
    lines = [line for line in result.stdout.lines if " does not exist: " in line and not line.startswith("ERROR ")]
    assert 1 == len({line for line in lines if "test_hello.jsonl" in line})
    assert 9 == sum("`pytest --record-streams=once 'test_chat.py::test_hello'`" in line for line in lines)
    (own,) = [line for line in lines if "test_own.jsonl" in line]
    assert "`pytest --record-streams=once 'test_chat.py::test_own'` records" in own
    (unused,) = [line for line in lines if "nobody.jsonl" in line]
    assert unused.endswith("use this recording: `pytest --record-streams=once`")


@pytest.mark.parametrize("passes", [True, False])
def test_an_error_response_is_recorded_if_the_test_passes(passes: bool, pytester: pytest.Pytester) -> None:
    with serving(Loopback([b'{"detail":"Not Found"}'], status=404)) as server:
        folder = write(
            pytester, server, f"\n    def test_hello(recording): assert ('Found' in ask(recording)) is {passes}"
        )
        result = run(pytester, "--record-streams=once", passed=passes, failed=not passes)
    assert ["test_hello.jsonl"] * passes == [each.name for each in folder.iterdir()]
    if not passes:
        message = f"*test_hello.jsonl is not recorded: POST {server.url} got the status 404, and the test did not pass"
        result.stdout.fnmatch_lines([message])


SHORT = """
    @pytest.mark.recording("test_hello", cut="byte", {fault})
    def test_fault(recording):
        with httpx.Client(transport=recording.transport) as client:
            with client.stream("POST", "{url}", json={{"say": "hello"}}) as response:
                assert next(response.iter_bytes())
"""


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("reset_after=6000", "*: reset_after=6000 was not reached: the response has 168 bytes"),
        pytest.param("stall_after=6000", "*: stall_after=6000 was not reached*168 bytes", marks=pytest.mark.deep),
        ("cut_after=160", "*: cut_after=160 was not reached: the reader closed the response earlier"),
        pytest.param("stall_after=160", "", marks=pytest.mark.deep),
        ("cut_after=1", ""),
        pytest.param(
            "reset_after=6000, unplayed='ignore'", "*: reset_after=6000 was not reached*", marks=pytest.mark.deep
        ),
    ],
)
def test_a_fault_that_is_not_reached_fails_the_test(
    fault: str, message: str, pytester: pytest.Pytester, provider: Provider
) -> None:
    """Also if the reader stops before the end."""
    record(pytester, provider)
    write(pytester, provider, SHORT.format(fault=fault, url=provider.url))
    result = run(pytester, passed=not message, failed=bool(message))
    if message:
        result.stdout.fnmatch_lines([message])


def test_a_request_without_a_response_is_not_recorded(pytester: pytest.Pytester, provider: Provider) -> None:
    """The old recording stays."""
    folder = record(pytester, provider)
    first = (folder / "test_hello.jsonl").read_bytes()
    refusing = """
    def test_hello(recording):
        with httpx.Client(transport=recording.transport) as client:
            client.post("http://127.0.0.1:1/")
    """
    write(pytester, provider, refusing)

    result = run(pytester, "--record-streams=rewrite", failed=1)
    result.stdout.fnmatch_lines(
        ["*test_hello.jsonl is not recorded: POST http://127.0.0.1:1/ got no complete response"]
    )
    assert first == (folder / "test_hello.jsonl").read_bytes()
    assert ["test_hello.jsonl"] == [each.name for each in folder.iterdir()]


PLACES = """
    class TestTools:
        def test_two(self, recording): ask(recording)

    @pytest.mark.parametrize("city", ["Paris", "a/b c"])
    def test_city(recording, city): ask(recording)

    @pytest.mark.anyio
    @pytest.mark.parametrize("city", ["Paris"])
    async def test_loops(recording, city):
        async with recording.client() as client:
            await client.post("{url}", json=1)

    @pytest.mark.anyio
    async def test_only_loops(recording):
        async with recording.client() as client:
            await client.post("{url}", json=1)

    @pytest.mark.recording("shared")
    def test_named(recording): ask(recording)

    @pytest.mark.recording("x" * 200)
    def test_long(recording): ask(recording)

    @pytest.mark.recording("other/place")
    def test_elsewhere(recording): ask(recording)

    @pytest.mark.recording("own.jsonl")
    def test_beside(recording): ask(recording)

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(request): return request.param
"""


def test_each_test_has_its_recording(pytester: pytest.Pytester, provider: Provider) -> None:
    """Event loops share one recording."""
    folder = write(pytester, provider, PLACES.replace("{url}", provider.url))

    run(pytester, "--record-streams=rewrite", "-p", "no:randomly", passed=11)
    run(pytester, passed=11)

    names = sorted(path.name for path in folder.iterdir())
    assert [
        "TestTools.test_two.jsonl",
        "shared.jsonl",
        "test_city-Paris.jsonl",
        *(name for name in names if name.startswith("test_city-a_b_c-")),
        "test_loops-Paris.jsonl",
        "test_only_loops.jsonl",
        *(name for name in names if name.startswith("xxx")),
    ] == names
    assert 7 == len(names)
    assert all(len(name) < 130 for name in names)
    assert (pytester.path / "own.jsonl").exists()
    assert (pytester.path / "other" / "place").exists()
    assert 9 == len(provider.requests)


CUTS = """
    from streamtools.events import Text
    from streamtools.testing import assert_events, every_cut

    @every_cut
    def test_all(recording): assert "Hel" in ask(recording)

    @every_cut
    @pytest.mark.recording("{path}")
    @pytest.mark.anyio
    async def test_events(recording):
        assert_events(await recording.replay(), [..., Text("Hello"), ...])

    @every_cut
    @pytest.mark.parametrize("city", ["Paris"])
    def test_city(recording, city): ask(recording)

    @pytest.fixture
    def anyio_backend(): return "trio"
"""


def test_every_cut_makes_one_test_for_each_cut(pytester: pytest.Pytester, provider: Provider) -> None:
    """All of them share one recording."""
    folder = write(pytester, provider, CUTS.replace("{path}", "recordings/test_chat/test_all.jsonl"))
    result = run(pytester, "--record-streams=once", "-v", passed=7 + 7 + 7)
    ways = ["recorded", "frame", "byte", "whole", "random1", "random2", "random3"]
    result.stdout.fnmatch_lines([f"*::test_all[[]cut={way}[]] PASSED*" for way in ways])
    result.stdout.fnmatch_lines(["*::test_events[[]cut=random3[]] PASSED*"])
    assert ["test_all.jsonl", "test_city-Paris.jsonl"] == sorted(path.name for path in folder.iterdir())
    assert 2 == len(provider.requests)


REPLAY = """
    import pytest
    from pathlib import Path
    from streamtools.errors import RecordingError
    from streamtools.events import Done, Call
    from streamtools.testing import RecordingFixture, assert_events

    def add(a: float, b: float) -> float:
        return a + b

    @pytest.mark.anyio
    @pytest.mark.recording(Path({path!r}))
    async def test_events(recording: RecordingFixture) -> None:
        first = await recording.replay(tools=[add])
        assert_events(first, [..., {{"type": "executed", "result": 41.5}}, ..., Done("finished", "stop", "stop", [])])
        assert "call_1" in [event.call.id for event in first if isinstance(event, Call)]

    @pytest.mark.anyio
    @pytest.mark.recording(Path({path!r}), reset_after=600)
    async def test_fault(recording: RecordingFixture) -> None:
        assert_events(await recording.replay(), [..., {{"type": "done", "reason": "failed"}}])

    @pytest.mark.recording(Path("missing.jsonl"))
    def test_missing(recording): pass

    @pytest.fixture
    def anyio_backend(): return "asyncio"
"""


def test_replay_returns_events(pytester: pytest.Pytester) -> None:
    """Call ids are the same in each run."""
    pytester.makepyfile(REPLAY.format(path=str(shipped()["hash-call"])))
    run(pytester, passed=2, errors=1)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("'a', 'b'", "takes one name, got ('a', 'b')"),
        ("colour='red'", "unknown option colour of a recording; the options are cut, cut_after,"),
        ("unplayed='maybe'", "unplayed must be one of 'fail', 'ignore', got 'maybe'"),
        ("speed=-1", "speed must be a number of at least 0, got -1"),
    ],
)
def test_an_invalid_marker_is_reported(marker: str, message: str, pytester: pytest.Pytester) -> None:
    tests = f"import pytest\n@pytest.mark.recording({marker})\ndef test_hello(recording): pass"
    pytester.makepyfile(tests)
    result = run(pytester, errors=1)
    assert message in result.stdout.str()


def test_recording_options_apply_to_all_tests(pytester: pytest.Pytester, provider: Provider) -> None:
    """A marker takes precedence."""
    options = """
    @pytest.fixture(scope="session")
    def recording_options():
        return {"source": "openai", "redact": ["Hel"], "unplayed": "ignore", "inner": httpx.HTTPTransport}

    def test_hello(recording): ask(recording)

    @pytest.mark.recording(source="responses")
    def test_other(recording): ask(recording)
    """
    folder = write(pytester, provider, options)
    run(pytester, "--record-streams=once", passed=2)

    (recorded,) = read_recordings(folder / "test_hello.jsonl")
    assert "openai" == recorded.head.source
    assert b"Hel" not in recorded.data
    assert "responses" == read_recordings(folder / "test_other.jsonl")[0].head.source


def test_secrets_are_overwritten_in_compared_requests(pytester: pytest.Pytester, provider: Provider) -> None:
    marked = "\n    @pytest.mark.recording(redact=['our-account'])"
    folder = write(pytester, provider, f"{marked}\n    def test_hello(recording): ask(recording, 'our-account-name')")
    for options in (["--record-streams=once"], []):
        run(pytester, *options, passed=1)
    assert [{"say": "***********-name"}] == sent_bodies(folder / "test_hello.jsonl")
    assert 1 == len(provider.requests)


def test_the_plugin_does_not_import_the_package(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile(
        "import sys\ndef test_hello():\n    assert not {'streamtools', 'pydantic', 'httpx'} & sys.modules.keys()"
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.runpytest_subprocess("-p", "_streamtools_pytest").assert_outcomes(passed=1)
