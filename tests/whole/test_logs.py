"""The logs of the library, and the records that operators find there."""

from __future__ import annotations

import io
import json
import logging
from typing import Annotated, Any, Literal

import anyio
import pytest
import structlog
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from streamtools import ToolCall, ToolError, ToolOutcome, ToolStream, sources
from streamtools.errors import ToolInputError, ToolTimeout
from streamtools.logs import without_inputs
from streamtools.tools import Tool
from tests.support.options import grouped


class City(BaseModel):
    name: str
    people: int


def look_up(city: str) -> str:
    """Raise an exception with a cause."""
    try:
        City.model_validate({"name": "n", "people": city})
    except ValueError as error:
        local = "a local"  # noqa: F841
        raise RuntimeError("the weather is not to be had") from error
    raise AssertionError


async def call(tool: Any, **options: Any) -> ToolOutcome:
    """Return the outcome of a call of this tool."""
    text = "###:" + json.dumps({"name": tool.name, "arguments": {"city": "an argument"}})
    events = ToolStream(sources.text([text]), tools=[tool], **grouped(**options))
    await events
    return events.result.outcomes[0]


async def test_a_failed_tool_is_in_the_standard_log(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The record is an error with the traceback, and without arguments and local variables."""
    await call(Tool(look_up))
    (record,) = caplog.records
    assert ("streamtools.tools.runner", logging.ERROR) == (record.name, record.levelno)
    assert "tool_call_failed tool='look_up' call_id='call_" in record.getMessage()
    values: dict[str, Any] = record.streamtools  # type: ignore[attr-defined]
    assert ("look_up", "tool_failed", "RuntimeError") == (values["tool"], values["code"], values["error"])
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], RuntimeError)
    assert "Invalid input for City:\npeople: Input should be a valid integer" in caplog.text
    assert "RuntimeError: the weather is not to be had" in caplog.text
    assert 'raise RuntimeError("the weather is not to be had") from error' in caplog.text
    assert "an argument" not in caplog.text
    assert ("", "") == capfd.readouterr()


async def test_an_unknown_tool_is_in_the_log_with_the_most_similar_one(caplog: pytest.LogCaptureFixture) -> None:
    """The record lists the tools, like the text for the model."""
    await ToolStream(sources.text(['###:{"name": "look_pu", "arguments": {}}']), tools=[Tool(look_up)])
    (record,) = caplog.records
    assert "there are look_up; did you mean 'look_up'?" in record.getMessage()


async def test_a_configured_structlog_gets_the_records(caplog: pytest.LogCaptureFixture) -> None:
    """The traceback is text, so that no renderer adds local variables."""
    out = io.StringIO()
    structlog.configure(
        processors=[structlog.contextvars.merge_contextvars, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(out),
    )
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        await call(Tool(look_up))
    entry = json.loads(out.getvalue())
    assert ("tool_call_failed", "streamtools.tools.runner", "r1") == (
        *(entry["event"], entry["logger"]),
        entry["request_id"],
    )
    assert "RuntimeError: the weather is not to be had" in entry["exception"]
    assert "an argument" not in out.getvalue()
    assert "a local" not in out.getvalue().replace('local = "a local"', "")
    assert not caplog.records


class Refused(ToolError):
    """An exception of the application."""


def refuse(city: str) -> str:
    raise Refused("not this one")


def count(city: int) -> int:
    return city


def give(city: str) -> Any:
    return object()


def echo(city: str) -> str:
    return city


async def wait(city: str) -> None:
    await anyio.sleep_forever()


async def test_exceptions_are_in_the_outcome_and_reported() -> None:
    """`on_result` gets the outcome with its exception."""
    heard: list[BaseException | None] = []

    async def hear(call: ToolCall, outcome: ToolOutcome) -> None:
        heard.append(outcome.exception)

    found = {
        tool.name: (await call(tool, on_tool_result=hear)).exception
        for tool in (Tool(look_up), Tool(refuse), Tool(count), Tool(give), Tool(wait, timeout=0.01), Tool(echo))
    }
    assert [RuntimeError, Refused, ToolInputError, TypeError, ToolTimeout, type(None)] == [
        type(error) for error in found.values()
    ]
    assert heard == [*found.values()]
    assert found["look_up"] is not None
    assert found["look_up"].__traceback__ is not None


class Village(BaseModel):
    kind: Literal["village"]


class Town(BaseModel):
    kind: Literal["town"]


def test_the_tag_of_a_union_is_left_out() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Annotated[Village | Town, Field(discriminator="kind")]).validate_python({"kind": "an input"})
    assert "'kind' is none of 'village', 'town' [union_tag_invalid]" in str(without_inputs(caught.value))
    assert "an input" not in str(without_inputs(caught.value))


def test_invalid_inputs_are_not_logged() -> None:
    """Holds for causes, contexts and groups. The raised exception stays unchanged."""
    try:
        try:
            City.model_validate({"name": 1, "people": "an input"})
        except ValueError as error:
            raise OSError(5, "out of order") from error
    except OSError as error:
        group = BaseExceptionGroup("two", [error, ValueError("b")])
    twin = without_inputs(group)
    assert isinstance(twin, ExceptionGroup)
    first = twin.exceptions[0]
    assert isinstance(first, OSError)
    assert (5, group.exceptions[0].__traceback__) == (first.errno, first.__traceback__)
    assert "an input" not in str(first.__cause__)
    assert "an input" in str(group.exceptions[0].__cause__)
    plain = ValueError("c")
    assert plain is without_inputs(plain)
