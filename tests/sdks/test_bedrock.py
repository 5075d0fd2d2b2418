"""botocore verifies signatures, paths, framing, and each member of Converse requests."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from streamtools import tool
from streamtools.conversation import Ask, BedrockConverse
from streamtools.conversation.models.http_model import ModelRequest, Timeouts
from streamtools.history import System, User, read_messages
from streamtools.tools import ToolChoice
from tests.sdks.judge import shape_faults
from tests.support.provider_streams import BY_NAME

pytestmark = pytest.mark.sdk

ARN = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2c3d4"
MODELS = ["anthropic.claude-sonnet-4-v1:0", "us.amazon.nova-pro-v1:0", ARN]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session with credentials, at a time that stands still."""
    from botocore import auth
    from botocore.session import get_session

    monkeypatch.delenv("AWS_BEARER_TOKEN_BEDROCK", raising=False)
    monkeypatch.setattr(auth, "get_current_datetime", lambda *args, **how: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    session = get_session()
    session.set_credentials("AKIDEXAMPLE", "secret", "token")
    return session


@pytest.mark.parametrize("name", MODELS)
def test_a_request_is_signed_as_botocore_signs_it(session: Any, name: str) -> None:
    """Path and signature are equal, and the HTTP client sends this path."""
    sent: list[Any] = []

    def keep(request: Any, **how: Any) -> Any:
        from botocore.awsrequest import AWSResponse

        sent.append(request)
        return AWSResponse(request.url, 403, {}, None)

    client = session.create_client("bedrock-runtime", region_name="us-east-1")
    client.meta.events.register("before-send", keep)
    with contextlib.suppress(Exception):  # botocore fails without an answer
        client.converse_stream(modelId=name, messages=[{"role": "user", "content": [{"text": "Hi"}]}])
    theirs = sent[0]
    told = {key.lower(): _text(value) for key, value in theirs.headers.items()}
    signed = told["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    model = BedrockConverse(name, region="us-east-1", credentials=session.get_credentials())
    kept = {key: told[key] for key in signed if key not in ("host", "x-amz-date", "x-amz-security-token")}
    ours = model._sign(ModelRequest(model.url, kept, _bytes(theirs.body), "bedrock", Timeouts(), 0))

    assert theirs.url == model.url
    assert told["authorization"] == ours["Authorization"]
    assert (
        model.url.removeprefix("https://bedrock-runtime.us-east-1.amazonaws.com").encode()
        == httpx.URL(model.url).raw_path
    )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else bytes(value or "", "utf-8")


def test_credentials_are_renewed() -> None:
    """Each request is signed with the current credentials."""
    from botocore.credentials import RefreshableCredentials

    keys = iter(["first", "second", "third"])

    def renew() -> dict[str, str]:
        soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()  # so botocore renews them each time
        return {"access_key": next(keys), "secret_key": "secret", "token": "token", "expiry_time": soon}

    credentials = RefreshableCredentials.create_from_metadata(renew(), renew, "sts-assume-role")
    model = BedrockConverse(MODELS[0], region="us-east-1", credentials=credentials)
    request = ModelRequest(model.url, {}, b"{}", "bedrock", Timeouts(), 0)
    signed = [model._sign(request)["Authorization"] for _ in range(2)]
    assert ["second", "third"] == [each.split("Credential=")[1].split("/")[0] for each in signed]


def test_botocore_reads_the_recorded_frames(session: Any) -> None:
    """It decodes them as messages and knows each member of their events."""
    from botocore.eventstream import EventStreamBuffer

    service = session.get_service_model("bedrock-runtime")
    events = service.operation_model("ConverseStream").get_event_stream_output()
    buffer = EventStreamBuffer()
    buffer.add_data(BY_NAME["bedrock"].body + BY_NAME["bedrock"].trouble[0])
    messages = list(buffer)
    for each in messages:
        told = each.to_response_dict()
        name = told["headers"].get(":event-type") or told["headers"][":exception-type"]
        value = {key: member for key, member in json.loads(told["body"]).items() if key != "p"}
        assert [] == shape_faults(events.members[name], value, name)
    assert len(BY_NAME["bedrock"].frames) + 1 == len(messages)


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


TURN: list[dict[str, Any]] = [
    {"role": "user", "content": [{"image": {"format": "png", "source": {"bytes": "aGk="}}}, {"text": "Hi"}]},
    {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "s"}}},
            {"reasoningContent": {"redactedContent": "ZGF0YQ=="}},
            {"text": "a"},
            {"toolUse": {"toolUseId": "t1", "name": "weather", "input": {"city": "Bern"}}},
        ],
    },
    {"role": "user", "content": [{"toolResult": {"toolUseId": "t1", "content": [{"text": "x"}], "status": "error"}}]},
]  # fmt: skip


def test_each_member_of_a_request_is_known(session: Any) -> None:
    """Messages, system, tools, their choice and options fit the shape of the request, to the leaves."""
    shape = session.get_service_model("bedrock-runtime").operation_model("ConverseStream").input_shape
    model = BedrockConverse("m", region="us-east-1", max_tokens=9, stop="END", temperature=0.5)
    history = [System("Be brief."), *read_messages(TURN), User("And now?")]
    for choice in ("auto", "required", "tool"):
        body = model.body(Ask(tuple(history), (weather,), ToolChoice(choice, "weather" if choice == "tool" else None)))
        assert [] == shape_faults(shape, {"modelId": "m", **body}, "request")
