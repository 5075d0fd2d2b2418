"""Agent frameworks with transport and gateway, unchanged: a text model upstream calls tools like any other.

Two environments run this, because the frameworks require different SDK versions (`sdk` and `sdk2`, see CONTRIBUTING).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

import pytest

from streamtools.gateway.service import app
from tests.sdks.frameworks import Agents, Anthropic, City, Framework, LangChain, LiteLlm, LlamaIndex, OpenAi, PydanticAi
from tests.support.readme import ROOT
from tests.support.serving import Served
from tests.support.text_model import SAYS, TextModel, text_model

pytestmark = [
    pytest.mark.asyncio_only,
    pytest.mark.filterwarnings("ignore"),  # the frameworks cause warnings
]
MODERN: tuple[type[Framework], ...] = (OpenAi, Anthropic, PydanticAi, Agents, LangChain)
FRAMEWORKS = [
    *(pytest.param(each, marks=pytest.mark.sdk) for each in MODERN),
    *(pytest.param(each, marks=pytest.mark.sdk2) for each in (LlamaIndex, LiteLlm)),
]


@pytest.fixture(params=FRAMEWORKS)
def kind(request: pytest.FixtureRequest) -> type[Framework]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["transport", "gateway"])
async def asked(request: pytest.FixtureRequest, kind: Any) -> AsyncIterator[tuple[Framework, TextModel]]:
    """A framework with a text model upstream."""
    with text_model() as model:
        if request.param == "transport":
            yield kind(model.url, over_transport=True), model
            return
        async with Served(app(model.url)) as server:
            framework = kind(f"{server.url}/v1", over_transport=False)
            yield framework, model
            await framework.http.aclose()


async def test_tools_are_run_and_their_results_answered(asked: tuple[Framework, TextModel]) -> None:
    framework, model = asked
    for streamed in (False, True):
        assert (["Bern", "Zürich"], SAYS) == await framework.loop(streamed=streamed)
    first, second = model.bodies[:2]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert not any("tools" in body for body in model.bodies)


async def test_a_call_is_forced_and_an_answer_has_its_form(asked: tuple[Framework, TextModel]) -> None:
    framework, model = asked
    for streamed in (False, True):
        model.bodies.clear()
        # Some frameworks allow only one call.
        assert await framework.force(streamed=streamed) in (["Bern", "Zürich"], ["Zürich"], ["Bern"])
        assert "Your answer has to" in str(model.bodies[0]["messages"][-1]["content"])
        assert City(city="Bern") == await framework.form(streamed=streamed)


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_errors_are_those_of_the_framework(asked: tuple[Framework, TextModel], status: int) -> None:
    framework, model = asked
    model.status = status
    for streamed in (False, True):
        with pytest.raises(Exception, match="It is too much") as raised:
            await framework.loop(streamed=streamed)
        assert status == getattr(raised.value, "status_code", None)


async def test_a_stream_that_breaks_off_is_an_error_and_runs_no_tool(asked: tuple[Framework, TextModel]) -> None:
    framework, model = asked
    model.breaks = True
    with pytest.raises(Exception, match="the connection to the provider was lost") as raised:
        await framework.loop(streamed=True)
    assert type(raised.value).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2")
    with pytest.raises(Exception, match=r"onnection|provider") as raised:  # one body: a fault of the network, or 502
        await framework.loop(streamed=False)
    assert type(raised.value).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2")
    assert [] == framework.ran


def test_the_page_names_the_tested_versions(kind: type[Framework]) -> None:
    """The table of docs/gateway.md has the major versions of the installed packages."""
    rows = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8").splitlines()
    for name in kind.distributions:
        row = next(row for row in rows if f"`{name}` " in row)  # the first: openai is one in JavaScript, too
        told = row.partition(f"`{name}` ")[2].split(".")
        assert version(name).split(".")[0] == told[0], row
