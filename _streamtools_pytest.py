"""What pytest loads of streamtools in every project that has it installed: an option, a marker and a fixture by name.

A module of its own beside the package, because importing anything of the package imports all of it, and most projects
have tests in which nothing streams. So whatever costs time is imported when a test asks for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from streamtools.testing import RecordingFixture

MODES = ("none", "once", "new", "rewrite")
_MARKER = (
    "recording(name, *, source, match, unplayed, allow_hosts, ...): which recording the fixture `recording` gives a"
    " test (by default the one named after the test, beside it), and how; the network is blocked while it is replayed"
)
_USED: pytest.StashKey[Any] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what is said on the command line."""
    group = parser.getgroup("streamtools", "streams, recorded and replayed")
    group.addoption(
        "--record-streams",
        choices=MODES,
        default="none",
        help="whether tests with the fixture `recording` may ask the network: never (none, the default); where there is"
        " no recording (once); for requests that are not in the recording (new); always, and anew (rewrite)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", _MARKER)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test that has the marker the fixture too, whether or not it asks for it by name."""
    names = getattr(item, "fixturenames", None)
    if names is not None and "recording" not in names and item.get_closest_marker("recording") is not None:
        names.append("recording")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that has passed, if it left something of its recording unplayed; explain one that has failed."""
    try:
        outcome = yield
    except BaseException:
        if (stream := item.stash.get(_USED, None)) is not None:
            from streamtools.testing.fixture import explain

            explain(item, stream)
        raise
    if (stream := item.stash.get(_USED, None)) is not None:
        from streamtools.testing.fixture import check

        check(stream)
    return outcome


@pytest.fixture(scope="session")
def recording_options() -> dict[str, Any]:
    """What holds for every recording of a project, to be overridden: the keywords of the marker."""
    return {}


@pytest.fixture
def recording(request: pytest.FixtureRequest, recording_options: dict[str, Any]) -> Iterator[RecordingFixture]:
    """The recording of this test: a transport for HTTP clients, and a replay straight to events."""
    from streamtools.testing.fixture import opened

    with opened(request, recording_options) as stream:
        request.node.stash[_USED] = stream
        yield stream
