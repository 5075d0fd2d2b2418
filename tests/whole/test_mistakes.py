"""Common mistakes of callers: each message says what to do."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.machinery import PathFinder
from operator import attrgetter
from typing import Any, cast

import anyio
import httpx
import pytest
from pydantic import BaseModel

import streamtools
from streamtools import ApprovalOptions, RunnerOptions, Tool, ToolContext, ToolStream, chat, replay, sources, tool
from streamtools.calls import ToolCall
from streamtools.conversation import (
    AnthropicMessages,
    CohereChat,
    GeminiChat,
    GeminiInteractions,
    OpenAIChat,
    OpenAIResponses,
    ScriptedModel,
)
from streamtools.errors import ChecksArguments, ClosedError, DecisionRefused, RecordingError, RunNotFound
from streamtools.events import NativeToolCall, UIEvent
from streamtools.history import read_messages
from streamtools.runs import Runs
from streamtools.serving.event_reader import EventReader, EventSink
from streamtools.tools import MemoryLedger
from streamtools.tools.approvals import Question, Suspension
from tests.machine.test_found_by_attack import collect
from tests.support.cases import cases
from tests.support.loopback import Loopback

DEFINITION = {"type": "function", "function": {"name": "f", "parameters": {}}}


class Completion(BaseModel):
    """The response of an SDK without `stream=True`. It is an iterable of its fields."""

    choices: list[str] = []


async def create() -> None:
    """An SDK request that the caller forgets to await."""


@tool
def stateful(context: ToolContext[Completion]) -> None:
    """A tool that uses the state of the application."""


@asynccontextmanager
async def entered() -> Any:
    """A stream that must be entered."""
    yield


HOSTED = (OpenAIChat, OpenAIResponses, AnthropicMessages, GeminiChat, GeminiInteractions, CohereChat)
LOCAL = OpenAIChat("m", base_url="http://127.0.0.1:1/v1")
QUESTION = [{"role": "user", "content": "Hello"}]
PROGRAM = """
import asyncio, copy, httpx, streamtools
from contextlib import ExitStack
from starlette.requests import Request
from streamtools import *
from streamtools import gateway, testing
from streamtools.conversation import *
from streamtools.events import NativeToolCall, Text
from streamtools.gateway import Rewrite, ToolCallTransport
from streamtools.history import read_messages, write_messages
from streamtools.outputs import asgi
from streamtools.recording import Playback, shipped
from streamtools.runs import RedisStore
from streamtools.tools import MemoryLedger, RedisLedger, SQLiteLedger
from tests.serving.test_asgi_by_hand import Socket

REQUEST = Request({"type": "http"})
"""


PAY = ToolCall(id="a", name="pay", arguments={}, dialect="native")
WAITING = Suspension(run_id="r", questions=[Question(call=PAY, digest=PAY.digest, approval=True)])
NAMES = {"LOCAL": LOCAL, "QUESTION": QUESTION, "Completion": Completion, "create": create, "entered": entered}
NAMES |= {"stateful": stateful, "Runs": Runs, "WAITING": WAITING, "LEDGER": RunnerOptions(ledger=MemoryLedger())}
NAMES |= {"DEFINITION": DEFINITION, "LOCAL_CHAT": chat(LOCAL, []), "ASK_NOW": ApprovalOptions(ask="now")}
exec(PROGRAM, NAMES)

WRITTEN = {
    'OpenAIChat("m", url="http://x")': "TypeError: OpenAIChat has no parameter 'url'; write base_url=...",
    'OpenAIChat("m", client=httpx.AsyncClient)': "TypeError: must be an HTTP client, such as httpx.AsyncClient()",
    'OpenAIChat("m", client=httpx.Client())': "TypeError: must be asynchronous, such as httpx.AsyncClient()",
    'OpenAIChat("m", name="x")': "TypeError: OpenAIChat has no parameter 'name'; write OpenAIChat(model)",
    'OpenAIChat("m", dialect="x")': "TypeError: has no parameter 'dialect'; write chat(..., dialects=[...])",
    'ParserOptions(repair="yes")': "ValueError: repair must be one of True, False, got 'yes'",
    'tool(name="f", idempotent="no")(print)': "ValueError: tool 'f': idempotent must be one of True, False, got 'no'",
    'Rewrite(fallbacks=["x"])': "TypeError: must be a FallbackUpstream, such as FallbackUpstream(url=...), got str",
    "Fallback([LOCAL])": "TypeError: got list; for several models, write Fallback(first, second)",
    'OpenAIChat("m", "http://x")': "TypeError: OpenAIChat() takes only model without a name; write base_url=...",
    "chat(LOCAL, QUESTION, [print])": "TypeError: chat() takes only model, messages without a name; write tools=...,",
    "ScriptedModel([QUESTION[0]])": "TypeError: answers[0]: a delta must be a text, bytes, an exception or a source",
    'ScriptedModel(["a", ["b", Text("c")]])': 'TypeError: answers[1]: such as NativeToolCall("name", {}), got Text',
    "chat(LOCAL, QUESTION, tools=[create()])": "TypeError: got a coroutine: pass functions without calling them",
    "chat(LOCAL, QUESTION, tools=[None])": "TypeError: `tools` contains None: leave it out",
    'chat(LOCAL, QUESTION, tools="f")': "TypeError: got str: pass functions without calling them, such as tools=[",
    'chat(LOCAL, QUESTION, tools={"create": create})': "TypeError: must be a list of functions and tools, or",
    "chat(LOCAL, QUESTION, tools=[tool(create), tool(create, timeout=1)])": "ValueError: two tools named",
    'chat(LOCAL, QUESTION, resume="run_1")': "ValueError: its JSON, or `await runs.find(run_id, …)`, got 'run_1'",
    "ToolContext(QUESTION)": "TypeError: ToolContext() takes no value without a name; write call_id=..., name=..., ",
    "chat(LOCAL, QUESTION, tools=[Completion])": "TypeError: a tool needs a function, got <class",
    "chat(LOCAL, QUESTION, requires_approval=True)": "TypeError: write @tool(requires_approval=...)",
    "chat(LOCAL, QUESTION, text_rules=[])": "TypeError: 'text_rules'; write text=TextOptions(rules=...)",
    "ToolStream(sources.text('a'), text_rules=[])": "TypeError: 'text_rules'; write text=TextOptions(rules=...)",
    "parse('a', tools=print)": "TypeError: for a function, write `@tool` above it, or pass `tool(function)`",
    "chat(LOCAL, QUESTION, deps=3)": "TypeError: 'deps'; write runner=RunnerOptions(state=...)",
    "tool(needs_approval=True)(print)": "TypeError: did you mean 'requires_approval'?",
    'chat(LOCAL, QUESTION, base_url="http://x")': "TypeError: write OpenAIChat(..., base_url=...)",
    'OpenAIChat("m", tools=[print])': "TypeError: has no parameter 'tools'; write chat(..., tools=[...])",
    "OpenAIChat()": "TypeError: OpenAIChat() needs a value for model",
    'OpenAIChat(base_url="http://x")': "TypeError: OpenAIChat() needs a value for model",
    "LOCAL_CHAT.stop()": "AttributeError: no attribute 'stop'; write `await stream.aclose()`",
    "LOCAL_CHAT.run_sync()": "AttributeError: in an async function, write `await stream`, or",
    "LOCAL_CHAT.state": "AttributeError: no attribute 'state'; it has aclose, answer, approve,",
    "LOCAL.invoke": "AttributeError: 'OpenAIChat' object has no attribute 'invoke'; it has body, ",
    "chat(LOCAL, QUESTION, tools=[stateful])": "ValueError: 'stateful' needs a state: RunnerOptions(state=...)",
    "chat(LOCAL, QUESTION, text=rules.Vault())": "TypeError: such as TextOptions(vault=...), got Vault",
    "chat(LOCAL, QUESTION, runner=MemoryLedger())": "TypeError: such as RunnerOptions(ledger=...), got MemoryLedger",
    "TextOptions(vault=[])": "TypeError: vault must be a vault, such as rules.Vault([rules.email()]), got list",
    "ExitStack().enter_context(MemoryLedger())": "TypeError: write `async with`: MemoryLedger is asynchronous",
    "__import__('streamtools.runs', None, None, ['RunStore'])": "ImportError: .runs import RedisStore`",
    "__import__('streamtools.run')": "ModuleNotFoundError: No module named 'streamtools.run'; write",
    "ToolCallTransport(dialect='x')": "TypeError: ToolCallTransport() has no parameter: did you mean 'dialects'?",
    "gateway.app('http://h/v1', dialect='x')": "TypeError: app() has no parameter: did you mean 'dialects'?",
    "OllamaChat('m', base_url='http://h/v1')": "ValueError: must not end with /v1: or write OpenAIChat(base_url=...)",
    "testing.assert_events([], Text)": "TypeError: expected must be a list, such as [..., Text, ...], got Text",
    "testing.assert_events(TurnResult(), [])": "TypeError: events must be a list of the events of a stream",
    "testing.read_events(REQUEST)": "TypeError: the body, such as response.content, must be a bytes, got Request",
    'Deny("no", "never")': "TypeError: Deny() takes only reason without a name",
    "chat(LOCAL)": "TypeError: chat() needs a value for messages",
    "tool(requires_approval=lambda: True)(print)": "TypeError: requires_approval(arguments), got <lambda>()",
    "chat(LOCAL, QUESTION, follow_up=lambda: None)": "TypeError: follow_up must be callable as follow_up(messages)",
    "chat(LOCAL, QUESTION, text=[rules.email()])": "TypeError: a TextOptions, such as TextOptions(rules=...), got list",
    'chat(LOCAL, QUESTION, guards={"calls": 3})': "TypeError: guards must be a Guards, such as Guards(calls=...), got",
    'chat(LOCAL, QUESTION, output="City")': "TypeError: got 'City'; write City without quotes",
    'chat(LOCAL, QUESTION, output={"a": {"type": "string"}})': "ValueError: no keyword, only 'a'; write {\"type\":",
    'write_messages(QUESTION, "openai")': "TypeError: write write_messages(read_messages(history), format)",
    'outputs.custom(lambda: "a")': "TypeError: function must be callable as function(event), got <lambda>()",
    "chat(LOCAL, QUESTION).text": "AttributeError: write `(await stream).text`, or `stream.result.text`",
    "[*chat(LOCAL, QUESTION)]": "TypeError: write `await`, or `async for` inside `async with`: Chat is asynchronous",
    "ExitStack().enter_context(chat(LOCAL, QUESTION))": "TypeError: write `async with`: Chat is asynchronous",
    "chat(LOCAL, QUESTION).result": "ClosedError: write `await stream`, or `async with stream as events:`",
    "asyncio.run(chat(LOCAL, QUESTION))": "ValueError: not read yet; in an async function, write `await stream`",
    'Runs().find("r", "ann")': "TypeError: Runs.find() takes only run_id without a name; write owner=...",
    'OpenAIChat("m", headers=["a"])': 'TypeError: headers must be a dict, such as {"X-Title": "app"}, got list',
    "chat(QUESTION, LOCAL)": "TypeError: got list; the model comes first",
    "chat(LOCAL, [], resume=WAITING, runner=LEDGER)": "ValueError: `resume` runs calls of the tools pay: write tools=",
    "streamtools.OpenAIChat": "AttributeError: write `from streamtools.conversation import OpenAIChat`",
    "__import__('streamtools.models')": "ModuleNotFoundError: write `from streamtools.conversation import OpenAIChat`",
    "__import__('streamtools.events', None, None, ['TextEvent'])": "ImportError: .events import Text`",
    "__import__('streamtools.events', None, None, ['Finished'])": "ImportError: .events import Done`",
    "__import__('streamtools', None, None, ['FunctionTool'])": "ImportError: write `from streamtools import To",
    "__import__('streamtools.asgi')": "ModuleNotFoundError: write `from streamtools.outputs import asgi`",
    "__import__('streamtools.rules.emial')": "ModuleNotFoundError: write `from streamtools.rules import email`",
    "__import__('streamtools', None, None, ['Runs'])": "ImportError: cannot import name 'Runs' from",
    "streamtools.conversation.OpenAI": "AttributeError: write `from streamtools.conversation import OpenAIChat`",
    "rules.regex": "AttributeError: write `from streamtools.rules import replace`",
    'ToolCall("a", "b")': "TypeError: ToolCall() takes no value without a name; write id=..., name=...",
    "Limits(cals=3)": "TypeError: Limits() has no parameter 'cals'; did you mean 'calls'?",
    'OpenAIChat("m", temprature=1)': "TypeError: has no parameter 'temprature'; did you mean 'temperature'?",
    "RedisStore(None)": "TypeError: Expected the URL of a Redis server or a redis.asyncio.Redis, got NoneType",
    "chat(LOCAL, LOCAL_CHAT)": "ValueError: got Chat; to continue a chat, pass its `history`",
    "asgi.event_stream_response(None)": "TypeError: got NoneType; the function that makes it needs a `return`",
    'OpenAIChat("m", base_url=httpx.URL("http://x"))': "TypeError: base_url must be a str, got URL",
    'OpenAIChat("m", response_format=Completion, api_key="")._request(Ask(()))': "TypeError: one of the options resp",
    'SQLiteLedger(".")': "IsADirectoryError: write the path of a file: . is a folder",
    "ToolStream(LOCAL_CHAT)": "UnreadableSource: source must be a source, got Chat: make one with",
    'RedisStore("localhost:6379")': "ValueError: such as 'redis://localhost:6379', got 'localhost:6379'",
    'OpenAIChat("m", timeout="soon")': "TypeError: `timeout` must be a Timeouts, a number of seconds",
    'chat("gpt-4o", [])': "TypeError: such as OpenAIChat('gpt-4o') of streamtools.conversation",
    'parse("a", dialects="hermes")': "ValueError: no dialect 'hermes'; did you mean 'hermes_json'?",
    "read_messages(QUESTION)[0].role": "AttributeError: 'User' object has no attribute 'role'; it has content, extra",
    'ToolStream(sources.text("a"), timeout=1)': "TypeError: 'timeout'; write runner=RunnerOptions(timeout=...)",
    "WAITING.calls[0].args": "AttributeError: 'ToolCall' object has no attribute 'args'; it has arguments, dialect,",
    'ToolStream(sources.text("a"), tools=[DEFINITION])': "TypeError: write `tool(function, name=…, parameters=SCHEMA)`",
    'parse(b"abc")': "TypeError: got bytes: decode bytes, or let `streamtools.sources`",
    "sources.openai(create())": "UnreadableSource: await it first",
    "sources.openai(entered())": "UnreadableSource: enter it first",
    "sources.openai(Completion())": "UnreadableSource: a whole answer and not a stream: request a stream",
    "chat(LOCAL, QUESTION[0])": 'ValueError: must be a list such as [{"role": "user", "content": "Hello"}], got dict',
    'SQLiteLedger("/no/folder/x")': "FileNotFoundError: make the folder of the ledger first: /no/folder does not exist",
    "read_messages([], client=True)": "InvalidMessages: the client sent no message",
    'read_messages([{"role": "user", "content": 5}], client=True)': "InvalidMessages: message 0: must be a text",
    'read_messages([{"role": "user", "contents": "x"}], client=True)': "InvalidMessages: did you mean 'content'?",
    'read_messages([{"role": "tool", "content": "x"}])': "ValueError: message 0: needs the key 'tool_call_id'",
    'read_messages([{"role": "user"}], client=True)': "InvalidMessages: message 0: or a list of parts, got None",
    'read_messages(["Hello"])': 'ValueError: message 0: must be an object such as {"role": "user", "content":',
    'chat(LOCAL, [], instructions="Be brief.")': "TypeError: 'instructions'; write system=...",
    "chat(LOCAL, [], system=QUESTION[0])": "TypeError: system must be a str, got",
    'chat(LOCAL, [], request={"teach": True})': "TypeError: write request=RequestOptions(teach=...)",
    'chat(LOCAL, [], max_steps="3")': "ValueError: max_steps must be a number of at least 1, got '3'",
    "chat(LOCAL, [], output=Completion())": "TypeError: a type for pydantic or a JSON schema, got Completion(",
    "TextOptions(rules=[rules.email])": "ValueError: such as [rules.email()], got email, which must be called",
    'parse("a", dialects="qwen3-coder")': "ValueError: write dialects=dialects_for('qwen3-coder')",
    'parse("a", dialects=3)': "ValueError: no dialect 3; dialects are ids and `Dialect` objects",
    'parse({"content": "a"})': "TypeError: a str or an iterable of deltas, got dict",
    'tool("f")(print)': "TypeError: for a name, write @tool(name=...)",
    'ScriptedModel("a", "b")': "TypeError: a list of answers, such as ['a', 'b'], got 'a'",
    'OpenAIChat("a", model="b")': "TypeError: OpenAIChat() got model twice: without a name and as model=...",
    'ScriptedModel(["a"], nam="x")': "TypeError: ScriptedModel has no parameter 'nam'; did you mean name=...?",
    "Fallback()": "TypeError: Fallback() needs a value for first",
    "ScriptedModel()": "TypeError: answers must be a list of answers, such as ['Hello!'], got None",
    'NativeToolCall("0", "f", {})': 'TypeError: takes name, arguments, such as NativeToolCall("pay", {}), got',
    'Runs("redis://a")': "TypeError: store must be a MemoryEventLog() or a RedisStore(url), got str",
    "Runs(resume=create, ledger=LEDGER.ledger)": "TypeError: resume must be callable as resume(run), got create()",
    'Runs(resume=print, ledger="a.db")': "TypeError: ledger must be a ledger: such as SQLiteLedger(path), got str",
    "outputs.custom(asyncio.sleep)": "TypeError: function must not be `async def`",
    'asgi.event_stream_response(chat(LOCAL, []), format="ai-sdk")': "ValueError: got 'ai-sdk'; did you mean 'ai_sdk'?",
    "asgi.event_stream_response(LOCAL_CHAT, format=lambda event: 1)": "TypeError: write format=outputs.custom(send)",
    'chat(LOCAL, [], approvals=ASK_NOW).approve({"id": "1"})': "TypeError: must be a str, such as event.call.id",
    'chat(LOCAL, [], approvals={"ask": "now"})': "ValueError: for the option, write ApprovalOptions(ask='now')",
    "asgi.event_stream_response(lambda: chat(LOCAL, []))": "TypeError: got <lambda>, which must be called",
    "asgi.event_stream_response(create())": "TypeError: got a coroutine; await it first",
}
"""Wrong expressions, and the type and parts of their errors."""

AWAITED = {
    "asgi.read_body(len, REQUEST)": "request must be the request of a framework, got builtin_function_or_method",
    "asgi.read_body(REQUEST, create)": "read must not be `async def`",
    "asgi.serve_websocket(Socket(), create)": "handler must be callable as handler(message, session), got create()",
    "asgi.serve_websocket(Socket(), print, format=create)": "format must be a name, an encoder or a function that",
    "asgi.serve_websocket(Socket(), print, format=len)": "write format=outputs.custom(send)",
    'asgi.send_events(Socket(), chat(LOCAL, QUESTION), format="text")': "must be None or outputs.custom(function)",
    'asgi.send_events("ws", chat(LOCAL, QUESTION))': "websocket must be the websocket of a framework, got str",
}
"""Wrong expressions that raise TypeError when they are awaited, and the parts of its message."""


def test_wrong_expressions_say_what_to_write() -> None:
    """The exception is raised at the mistake."""
    with cases() as case:
        for code, message in WRITTEN.items():
            with case(code):
                with pytest.raises(
                    (TypeError, ValueError, AttributeError, LookupError, ImportError, OSError, ClosedError)
                ) as caught:
                    eval(code, NAMES)
                kind, _, text = message.partition(": ")
                assert kind == type(caught.value).__name__
                assert all(part in str(caught.value) for part in text.split(": "))


async def test_awaited_expressions_say_what_to_write() -> None:
    """The exception is raised before the request or the websocket is read."""
    for code, message in AWAITED.items():
        with pytest.raises(TypeError, match=re.escape(message)):
            await eval(code, NAMES)
    with pytest.raises(RecordingError, match=r"write shipped\(\)\['tilde-call'\]"):
        await replay("tilde-call")
    async with chat(ScriptedModel(["x"]), QUESTION) as events:
        with pytest.raises(ValueError, match=r"write output=list\[Completion\]"):
            [item async for item in events.items(Completion)]
    for name, note in (("content", '== "text":` first, and read `event.text`;'), ("txt", "this event has run_id, seq")):
        with pytest.raises(AttributeError, match=f"'Start' object has no attribute '{name}'") as caught:
            async with chat(ScriptedModel(["x"]), QUESTION) as events:
                [getattr(event, name) async for event in events]
        assert note in caught.value.__notes__[0]
    with pytest.raises(AttributeError, match="object has no attribute 'id'") as caught:
        async with chat(ScriptedModel([NativeToolCall("f", {})]), QUESTION) as events:
            [event.id async for event in events if event.type == "call"]  # type: ignore[attr-defined]
    assert "write `event.call.id`; this event has call" in caught.value.__notes__[0]


MODULES = (
    *("conversation", "gateway", "history", "outputs.asgi", "recording", "rules", "runs", "sources", "testing"),
    "tools",
)


def test_a_misspelled_parameter_has_a_suggestion() -> None:
    """Holds for each keyword of the public functions, and of the constructors and methods of public classes."""
    found = 0
    with cases() as case:
        for module in ("streamtools", *(f"streamtools.{each}" for each in MODULES)):
            public = [getattr(import_module(module), name) for name in import_module(module).__all__]
            members = [
                each
                for one in public
                if inspect.isclass(one) and issubclass(one, ChecksArguments)
                for each in methods(one)
            ]
            for call in [*filter(inspect.isfunction, public), *members]:
                known = inspect.signature(call).parameters.values()
                if any(each.kind is each.VAR_KEYWORD for each in known):
                    continue
                for name in [each.name for each in known if each.kind is each.KEYWORD_ONLY]:
                    found += 1
                    wrong, advice = f"{name}s", rf"has no parameter '{name}s'; did you mean '{name}'\?"
                    with case(f"{module} {call.__qualname__} {name}"), pytest.raises(TypeError, match=advice):
                        call(**{wrong: 1})
    assert found > 100


def methods(kind: type[Any]) -> list[Any]:
    """Return the public methods of a class, and the class as the function that makes an instance."""
    own = [each for name, each in vars(kind).items() if inspect.isfunction(each) and not name.startswith("_")]
    return [kind, *own]


async def test_a_wrong_use_of_a_run_says_what_to_write() -> None:
    """A run and its reader are read in one way."""

    async def loop() -> None:
        async for _ in run:
            pass

    async def wait() -> None:
        await run

    async def wait_for_reader() -> None:
        await run.attach()

    async def enter() -> None:
        async with run:
            pass

    async with Runs() as runs:
        run: Any = await runs.start(chat(ScriptedModel(["Hello."]), QUESTION), owner="ann")
        with pytest.raises(AttributeError, match=r"no attribute 'text'; write `run\.result\.text`"):
            attrgetter("text")(run)
        with pytest.raises(TypeError, match="`owner` must be a str, got int"):
            await runs.list(cast("Any", 3))
        for use in (loop, wait, wait_for_reader, enter):
            with pytest.raises(TypeError, match=r"write `async with run\.attach\(\) as events:`"):
                await use()
        with pytest.raises(DecisionRefused, match="'0' does not wait for a decision"):
            await run.approve("0")
        with pytest.raises(TypeError, match=r"the stream must be .*, got Run"):
            await runs.start(run, owner="ann")
        with pytest.raises(RunNotFound) as caught:
            await runs.find("other", owner="ann")
        assert "exception_handlers=asgi.exception_handlers" in caught.value.__notes__[0]


async def test_a_wrong_call_id_names_the_calls_that_wait() -> None:
    """A decision of a stream may be awaited."""
    model = ScriptedModel([NativeToolCall("pay", {}), "Paid."], native_tool_calls=True)
    tools, approvals = [tool(name="pay", requires_approval=True)(lambda: "paid")], ApprovalOptions(ask="now")
    async with chat(model, QUESTION, tools=tools, approvals=approvals) as events:
        async for event in events:
            if event.type == "approval-requested":
                with pytest.raises(
                    DecisionRefused, match=f"'0' does not wait for a decision; these wait: '{event.call.id}'"
                ):
                    events.approve("0")
                await events.approve(event.call.id)
                events.approve(event.call.id)
    assert "Paid." == events.result.text


@asynccontextmanager
async def yields(value: object) -> AsyncIterator[Any]:
    """Yield a value in place of events."""
    yield value


async def generates_a_stream() -> AsyncIterator[Any]:
    """Yield an entered chat, without `asynccontextmanager`."""
    async with chat(ScriptedModel(["Hello."]), QUESTION) as events:
        yield events


async def generates_events() -> AsyncIterator[UIEvent]:
    """Yield the events of a chat."""
    async with chat(ScriptedModel(["Hello."]), QUESTION) as events:
        async for event in events:
            yield event


NOT_EVENTS: dict[str, tuple[Callable[[], Any], str]] = {
    "a generator of a stream": (generates_a_stream, "got Chat; a function that yields a stream needs `@asynccontextm"),
    "a text": (lambda: yields("Hello."), "the stream must be an iterator of events (`yield` it), got str"),
    "None": (lambda: yields(None), "the stream must be an iterator of events (`yield` it), got NoneType"),
}


async def test_a_stream_of_other_values_is_refused() -> None:
    """The exception is raised alone, not in a group. A generator of events is valid."""
    returns: Any = asynccontextmanager(cast("Any", create))
    with pytest.raises(TypeError, match="`@asynccontextmanager` must be `async def`, and must `yield` the stream"):
        EventReader(returns())
    for name, (make, message) in NOT_EVENTS.items():
        reader = EventReader(make())
        with pytest.raises(TypeError, match=re.escape(message)) as caught:
            await reader.read(EventSink())
        assert re.match(rf"(generates_a_stream|yields) \({re.escape(__file__)}:\d+\): ", str(caught.value))
        async with Runs() as runs:
            with pytest.raises(TypeError, match="asynccontextmanager" if "generator" in name else re.escape(message)):
                await (await runs.start(make(), owner="ann")).wait()
    valid = EventReader(generates_events())
    await valid.read(EventSink())
    assert "done" == getattr(valid.last, "type", None)


async def test_silent_mistakes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Correct uses are not."""

    def logged() -> str:
        names = [record.getMessage().partition(" ")[0] for record in caplog.records]
        caplog.clear()
        return " ".join(name for name in names if name != "stream_not_read")

    def use(answers: list[Any], **options: Any) -> Any:
        return chat(ScriptedModel(answers, native_tool_calls=options.pop("native", None)), QUESTION, **options)

    call = NativeToolCall("f", {})
    with_list, without_list = ['{"a": [1]}'], ['{"a": 1}']
    async with use(["Hello."]) as events:
        for expected in ("", "events_already_read"):
            assert not [event async for event in events if event.type == "error"]
            assert expected == logged()
    await events
    async with Runs() as runs, (await runs.start(use(["Hello."]), owner="ann")).attach() as attachment:
        for expected in ("", "events_already_read"):
            assert not [event async for event in attachment if event.type == "error"]
            assert expected == logged()
    for answers, expected in ((with_list, ""), (without_list, "no_list_in_answer")):
        async with use(answers, output=dict[str, Any]) as events:
            assert len([item async for item in events.items(int)]) == (not expected)
        assert expected == logged()
    tools, forgets = [tool(name="f")(lambda: "x")], cast("Any", lambda: None)
    forgets.__annotations__ = {"return": str}
    for options, expected in (
        ({}, "calls_without_tools"),
        ({"request": {"tools": [DEFINITION]}}, ""),
        ({"tools": tools, "follow_up": "never"}, ""),
        ({"tools": [tool(name="f")(forgets)], "follow_up": "never"}, "tool_returned_none"),
    ):
        await use([[call]], **options)
        assert expected == logged()
    async with Runs() as runs:
        await runs.start(chat(ScriptedModel(["Hello."], delay=3600), QUESTION), owner="ann")
    assert "runs_stopped" == logged()
    use(["Hello."], native=False, tools=tools, dialects=[])
    assert "tools_not_told" == logged()
    use(["Hello."], native=False, dialects=[])
    ScriptedModel(["Hello,", "world"])
    ScriptedModel([["Hello, ", "world"]])
    assert not logged()
    ScriptedModel(["Hello, ", "world"])
    ScriptedModel(["Hello,", " world"])
    assert "answers_are_fragments answers_are_fragments" == logged()
    read_messages([{"role": "user", "content": 5}])
    assert "content_of_other_type" == logged()
    read_messages([{"role": "tool", "tool_call_id": "x", "content": 5}])
    assert not logged()


def test_objects_can_be_copied() -> None:
    """The check of the arguments knows that a copy is made without arguments."""
    for made in (RunnerOptions(timeout=3), LOCAL):
        for copied in (copy.copy(made), copy.deepcopy(made), *(pickle.loads(pickle.dumps(made, n)) for n in range(6))):
            assert (type(made), repr(vars(made))) == (type(copied), repr(vars(copied)))


def test_each_public_name_is_found() -> None:
    """The import of a name from the wrong module names the right one. Modules and unknown names are not affected."""
    others = ("conversation", "history", "outputs", "outputs.asgi", "recording", "runs", "tools", "testing", "gateway")
    for name in {name for other in others for name in import_module(f"streamtools.{other}").__all__}:
        if name not in streamtools.__all__ and PathFinder.find_spec(name, streamtools.__path__) is None:
            with pytest.raises(ImportError, match=rf"`from streamtools[\w.]* import {name}`$") as caught:
                exec(f"from streamtools import {name}")
            namespace = dict[str, Any]()
            exec(str(caught.value).split("`")[1], namespace)
            assert name in namespace
            assert not hasattr(streamtools, name)


async def test_a_run_of_a_wrong_conversation_does_not_start() -> None:
    """The context of the runs ends, because no run was registered."""
    wrong: list[tuple[Any, Any, Any]] = [(chat, "ann", "a"), (chat(LOCAL, []), 3, "a"), (chat(LOCAL, []), "ann", 3)]
    with anyio.fail_after(10):
        async with Runs() as runs:
            for stream, owner, conversation in wrong:
                with pytest.raises(TypeError):
                    await runs.start(stream, owner=owner, conversation=conversation)
            assert 0 == runs.running


async def test_a_stream_that_is_never_read_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A stream that was closed, misused with an error, refused by `Runs` or not constructed is not."""
    model = ScriptedModel(["Hello."] * 9)
    gc.collect()
    gc.freeze()  # all objects of earlier tests: they take most of the time of a collection
    makers: list[Callable[[], Any]] = [lambda: chat(model, QUESTION), lambda: ToolStream(sources.text("a"))]
    for make in makers:
        await make()
        await make().aclose()
        async with make() as events:
            assert events.run_id
        async with Runs(max_running=1) as runs:
            run = await runs.start(make(), owner="ann")
            with pytest.raises(TypeError):
                await runs.start(make(), owner=3)  # type: ignore[arg-type]
            await run.wait()
        gc.collect()
        assert "stream_not_read" not in caplog.text
        for misuse in (list, ExitStack().enter_context, attrgetter("text"), attrgetter("result")):
            with pytest.raises((TypeError, AttributeError, ClosedError), match="write `"):
                misuse(make())
        gc.collect()
        assert "stream_not_read" not in caplog.text
        make()
        gc.collect()
        (record,) = caplog.records
        assert "advice='pass it to asgi.event_stream_response, or" in record.getMessage()
        caplog.clear()
    pay, runner = tool(name="pay")(lambda: 1), RunnerOptions(ledger=MemoryLedger())
    with pytest.raises(ValueError, match="the messages do not end with the calls"):
        chat(model, QUESTION, resume=WAITING, tools=[pay], runner=runner)
    gc.collect()
    assert "stream_not_read" not in caplog.text


def test_a_stream_that_is_not_read_before_the_exit_is_not_logged() -> None:
    program = """import logging.handlers, queue, sys; from streamtools import ToolStream, sources
logging.getLogger().addHandler(logging.handlers.QueueHandler(queue.Queue()))
sys.modules["kept"] = ToolStream(sources.text("a"))"""
    assert b"" == subprocess.run([sys.executable, "-c", program], check=True, capture_output=True).stderr


async def test_an_awaited_chat_returns_its_result() -> None:
    """It is awaited in its block and again. Exceptions of the model are raised."""
    async with chat(ScriptedModel(["Hello."]), QUESTION) as events:
        assert "Hello." == (await events).text
    assert "finished" == (await events).reason
    with pytest.raises(LookupError):
        await chat(ScriptedModel([]), QUESTION)


async def test_a_response_that_was_read_before_arrives_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why."""
    async with Loopback([b'data: {"choices":[]}\n\n', b"data: [DONE]\n\n"]) as server, httpx.AsyncClient() as client:
        streams = client.stream("POST", server.url)
        async with streams as response:
            await collect(ToolStream(sources.openai(response)))
        assert not [each for each in caplog.records if each.name.startswith("streamtools")]
        await collect(ToolStream(sources.openai(await client.post(server.url))))
    (record,) = [each for each in caplog.records if each.name.startswith("streamtools")]
    assert "client.stream(" in record.getMessage()


def test_an_empty_message_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The record has its position. The request is sent."""
    chat(ScriptedModel(["Yes?"]), [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": ""}])
    assert "empty_message" not in caplog.text
    contents: list[Any] = ["", [], None]
    for content in contents:
        caplog.clear()
        said = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}]
        chat(ScriptedModel(["Yes?"]), [*said, {"role": "user", "content": content}])
        assert "empty_message messages=[2]" in caplog.records[0].getMessage()


def test_parameters_without_a_type_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A parameter with the type `Any` is not."""

    def look(place, near: Any, context: ToolContext, most: int = 1, *, soon=False):  # type: ignore[no-untyped-def]
        return place, near, most, soon

    def see(place: Any, *, soon: bool = False) -> Any:
        return place, soon

    Tool(see)
    assert not caplog.records
    Tool(look)
    (record,) = caplog.records
    assert "tool='look' parameters=['place', 'soon']" in record.getMessage()


async def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The constructor of each hosted model checks it, unless the caller passes a client or headers.

    A function that returns no key is called for each request.
    """
    for kind in HOSTED:
        for name in kind.key_names:
            monkeypatch.delenv(name, raising=False)
        with pytest.raises(ValueError, match=rf"has no API key: set {kind.key_names[0]}\b.*, or pass api_key"):
            kind("m")
        named: list[dict[str, Any]] = [{"api_key": ""}, {"client": httpx.AsyncClient()}, {"headers": {"x-key": "k"}}]
        for options in (*named, {"base_url": "http://127.0.0.1/v1"}):
            kind("m", **options)
        no_key: Any = partial(os.environ.get, kind.key_names[0])
        with pytest.raises(ValueError, match="has no API key"):
            await chat(kind("m", api_key=no_key), QUESTION)
        monkeypatch.setenv(kind.key_names[-1], "k")
        kind("m")
