"""Runs whose chat has a vault: readers of all processes get values, and the store has placeholders."""

from __future__ import annotations

import base64
import itertools
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ApprovalOptions, RunnerOptions, TextOptions, Tool, chat, outputs, rules
from streamtools.calls import ToolCall
from streamtools.conversation import ScriptedModel
from streamtools.events import Executed, NativeToolCall, Start, Text, UIEvent, read_ui_event
from streamtools.json_values import compact, with_texts
from streamtools.outputs import validate
from streamtools.outputs.asgi import event_stream_response, serve_websocket
from streamtools.rules import Vault
from streamtools.runs import LostRun, RedisStore, Run, Runs
from streamtools.serving import redis_protocol, redis_server
from streamtools.serving.event_reader import EventSink, PacedSink
from streamtools.serving.response_writer import ResponseWriter
from streamtools.serving.stored_vault import StoredVault, VaultReader, hide, restored
from streamtools.tools import Deny, MemoryLedger, RedisLedger
from streamtools.tools.redis_client import open_client
from tests.chat.test_continued_chat import Interruptible, text_of
from tests.rules.test_vault import new_vault, texts
from tests.serving.test_asgi_by_hand import Socket
from tests.serving.test_recovery import Site, is_last
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.redis_server import RedisServer
from tests.support.serving import Exchange, read_frames
from tests.support.talks import says
from tests.whole.test_server_programs import BLOCKS, END, PAY, PROGRAMS, serving

pytestmark = pytest.mark.asyncio_only

ANN, BO, CY, DEE = "ann@example.org", "bo@example.com", "cy@example.net", "dee@example.org"
CARD = 4111111111111111
ASK = [{"role": "user", "content": f"Write to {ANN}."}]
CALL = NativeToolCall("send", {"to": "<EMAIL_2>"}, "c1", "c1")
ANSWERS: list[list[Any]] = [["I write to <EMAIL_2>. ", CALL], ["Sent to <EMAIL_2>, and a copy to <EMAIL_3>."]]
NAMES = """from streamtools import TextOptions, rules
from streamtools.tools import RedisLedger
from tests.serving.test_vault_in_runs import Reversed
Fernet = lambda key: Reversed()
"""
TEXT = f"I write to {ANN}. Sent to {ANN}, and a copy to {BO}."


class Reversed:
    """A cipher."""

    def encrypt(self, data: bytes, /) -> bytes:
        return base64.b64encode(data)[::-1]

    def decrypt(self, data: bytes, /) -> bytes:
        return base64.b64decode(data[::-1])


class Desk:
    """Makes chats. Each has a new vault. The first vault already knows Cy, so that its state matters."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.asked: list[str] = []
        self.ledger: Any = MemoryLedger()
        self.decision: Any = True

    def send(self, to: str) -> dict[str, Any]:
        """Send a mail."""
        self.sent.append(to)
        return {"copy": BO, "card": CARD}

    def options(self, *known: str, **more: Any) -> dict[str, Any]:
        vault = Vault([rules.email(), rules.credit_card()])
        for value in known:
            vault.learn(value)
        send = Tool(self.send, requires_approval=more.pop("asks", False))
        return {"tools": [send], "text": TextOptions(vault=vault), "runner": RunnerOptions(ledger=self.ledger), **more}

    def chat(self, most: float = math.inf, continue_from: LostRun | None = None) -> Any:
        desk = self

        class Model(Interruptible):
            def stream(self, ask: Any) -> Any:
                desk.asked.append(repr(ask))
                return super().stream(ask)

        known = [] if continue_from else [CY]
        return chat(Model(ANSWERS, "vllm", most=most), ASK, continue_from=continue_from, **self.options(*known))

    def check(self) -> None:
        """No request has a value, and each mail was sent once, unless the user has denied it."""
        assert self.sent == ([ANN] if self.decision is True else [])
        assert not [text for text in self.asked if has_value(text)]


def has_value(text: str) -> bool:
    return any(value in text for value in (ANN, BO, DEE, str(CARD)))


async def stored(server: RedisServer, prefix: str) -> dict[str, str]:
    """Return all data on the server, by key."""
    reads: dict[bytes, list[Any]] = {
        b"hash": ["HGETALL"],
        b"stream": ["XRANGE", "-", "+"],
        b"set": ["SMEMBERS"],
        b"string": ["GET"],
    }
    found = {}
    async with open_client(server.url) as client:
        for name in await client.execute("KEYS", f"{prefix}:*"):
            command, *more = reads.get(await client.execute("TYPE", name), ["ZRANGE", 0, -1])
            found[name.decode()] = repr(await client.execute(command, name, *more))
    return found


numbers = st.sampled_from([CARD, float(CARD), -CARD, CARD * 10 + 7, CARD / 1e4, 1e-7, 0, True, None, str(CARD)])


@given(st.lists(texts, min_size=1, max_size=4), st.lists(numbers, max_size=4), st.booleans())
def test_what_is_stored_is_restored(several: list[str], numbers: list[Any], is_foreign: bool) -> None:
    """A stored event has the same type, and no value that the vault knows. `is_foreign`: the process has no rules."""
    vault: Vault = StoredVault() if is_foreign else new_vault(state={"values": {"card": [str(CARD)]}})
    data = [*several, "text", "<card_1>", {"seq": numbers}]
    call = ToolCall(id="1", name="a", arguments={several[0]: data, "n": numbers}, dialect="d")
    told = [Text(several[0], seq=CARD), Executed(call, data, several[0], float(CARD), seq=1)]
    written = [*(event.to_json().encode() for event in told), json.dumps([*data, *numbers]).encode()]
    hidden = [hide(vault, data, is_delta=False) for data in written]
    reader = StoredVault(state=vault.state)

    assert [event.type for event in told] == [read_ui_event(data).type for data in hidden[:2]]
    # The JSON text distinguishes 1, 1.0, "1" and true.
    assert [compact(json.loads(data)) for data in written] == [restored(reader, data).decode() for data in hidden]
    assert not any(address in str(hidden) for address in ("ann@example.org", "bo@example.com"))
    assert [1, 1, 0] == [data.count(b"%d" % CARD) for data in hidden]  # `seq` and `elapsed` are no values


@pytest.mark.servers
@pytest.mark.parametrize("most", [2, 6, 10, math.inf])
async def test_a_run_that_is_taken_over(server: RedisServer, prefix: str, most: float) -> None:
    """Its next process has the same placeholders. No key has a value, and all are deleted with the run."""
    desk = Desk()
    site = Site(server, prefix, desk.chat, vault_cipher=Reversed())
    async with site.processes() as (here, there):
        run = await here.start(desk.chat(most), owner="ann", note=ASK)
        found = await there.find(run.id, owner="ann")
        assert ASK == found.note
        events = []
        with anyio.fail_after(20):
            async for event in found.attach():
                events.append(event)
                if most < math.inf and not site.losses and await is_last(event, run):
                    site.cut.cut()
        site.cut.restore()
        validate(events)
        assert TEXT == text_of(events) == (await found.wait()).text
        assert [{"copy": BO, "card": CARD}] == [event.result for event in events if isinstance(event, Executed)]
        again = await there.find(run.id, owner="ann")
        assert events == [event async for event in again.attach()] == [event async for event in run.attach()]
        kept = await stored(server, prefix)
        assert "<EMAIL_2>" in str(kept)
        assert 1 == sum("b'vault'" in data for data in kept.values())
        assert not [name for name, data in kept.items() if has_value(data)]
        assert all(ANN in json.dumps([lost.note, *(event.to_json() for event in lost.events)]) for lost in site.losses)
        desk.check()
        await there.forget(run.id, owner="ann")
        assert not [name for name in await stored(server, prefix) if name.endswith(("log", "meta"))]


async def test_a_chat_without_a_vault_does_not_continue_the_run() -> None:
    """It would send the values."""
    lost = LostRun("r", "ann", None, None, 1, [], vault=Vault(state={"values": {"email": [ANN]}}))
    with pytest.raises(ValueError, match="The run has a vault: write text=TextOptions"):
        chat(ScriptedModel([]), ASK, continue_from=lost)


DENIED = Deny(f"Ask {BO} or {DEE}, not {CARD}")
DECISIONS = pytest.mark.parametrize("decision", [True, DENIED])


@pytest.mark.servers
@DECISIONS
async def test_a_waiting_run_on_redis(server: RedisServer, prefix: str, decision: Any) -> None:
    """Another process decides and continues it."""
    desk = Desk()
    desk.decision = decision
    desk.ledger = RedisLedger(server.url, prefix=prefix, cipher=Reversed())
    model = ScriptedModel([ANSWERS[1][0]])

    def resume(run: Run) -> Any:
        return chat(model, run.history, resume=run, **desk.options(asks=True))

    stores = [RedisStore(server.url, prefix=prefix, vault_cipher=Reversed()) for _ in range(2)]
    async with desk.ledger, Runs(stores[0], resume=resume) as here, Runs(stores[1], resume=resume) as there:
        first = chat(ScriptedModel([ANSWERS[0]]), ASK, **desk.options(CY, asks=True))
        run = await here.start(first, owner="ann", note=ASK)
        await run.wait()
        found = await there.find(run.id, owner="ann")
        assert found.suspension is not None
        assert [{"to": ANN}] == [call.arguments for call in found.suspension.calls]
        following = await there.decide(run.id, found.suspension.calls[0].id, desk.decision, owner="ann")
        assert TEXT == text_of([event async for event in following.attach()])
        desk.asked += map(repr, model.asks)
        desk.check()
        ran = [{"copy": BO, "card": CARD}] if decision is True else []
        outcomes = [entry.outcome for entry in await desk.ledger.entries()]
        assert ran == [outcome.result for outcome in outcomes if outcome is not None and outcome.result]
        kept = await stored(server, prefix)
        assert not [name for name, data in kept.items() if has_value(data)]


@pytest.mark.servers
@pytest.mark.parametrize("is_redis", [True, False])
async def test_the_documented_program(
    server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_redis: bool
) -> None:
    """It is restarted before the approval. Only the call has the address."""
    (block,) = [each for each in BLOCKS if each.heading == "With a vault" and each.language == "python"]
    code = block.text[block.text.index("vault =") :]
    code = code.replace('"], ', f'"], prefix="{prefix}", ') if is_redis else code.partition("\n")[0]
    program = PROGRAMS["approval"].replace("tools=[pay], ", "tools=[pay], text=TextOptions(vault=vault), ")
    program = program.replace("\n\n@async", f"\n{code}\n@async").replace("import os\n", f"import os\n{NAMES}", 1)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    if is_redis:
        program = program.replace("async with Runs(", "async with ledger, Runs(")
        monkeypatch.setenv("REDIS_URL", server.url)
        monkeypatch.setenv("VAULT_KEY", "")
    monkeypatch.setitem(PROGRAMS, "approval", program)
    first, second = Provider(Loopback([PAY.replace(b"Ann", b"<EMAIL_1>"), END])), Provider(says("Paid."))
    async with serving("approval", model=first) as (_, client):
        run = (await client.post("/chat", json={"messages": ASK})).json()["run"]
        events = read_frames((await client.get(f"/chat/{run}")).content)
    (asked,) = [event for event in events if event["type"] == "approval-requested"]
    assert ANN == asked["call"]["arguments"]["to"]
    async with serving("approval", model=second) as (_, client):
        decision = {"decision": "approve", "digest": asked["digest"]}
        await client.post(f"/chat/{run}/calls/{asked['call']['id']}", json=decision)
        events = read_frames((await client.get(f"/chat/{run}")).content)
    assert [f"paid 5 to {ANN}"] == [event["result"] for event in events if event["type"] == "executed"]
    assert "paid 5 to <EMAIL_1>" in str(second.bodies)
    assert not has_value(str([first.bodies, second.bodies, await stored(server, prefix)]))


async def test_the_exception_of_a_run_is_logged_with_placeholders(caplog: pytest.LogCaptureFixture) -> None:
    def review(messages: Any) -> Any:
        raise RuntimeError(f"refused {messages}")

    async with Runs() as runs:
        run = await runs.start(
            chat(ScriptedModel([ANSWERS[0]]), ASK, follow_up=review, **Desk().options(CY)), owner="a"
        )
        with pytest.raises(RuntimeError, match=BO):
            await run.wait()
    assert "run_failed" in caplog.text
    assert "<EMAIL_3>" in caplog.text
    assert not has_value(caplog.text)


@pytest.mark.servers
@DECISIONS
async def test_questions_of_another_process(server: RedisServer, prefix: str, decision: Any) -> None:
    """The messages between the processes, and the stored decision, have no values."""
    desk = Desk()
    desk.decision = decision
    made = chat(
        ScriptedModel([ANSWERS[0], ANSWERS[1][0]]),
        ASK,
        **desk.options(CY, asks=True, approvals=ApprovalOptions(ask="now")),
    )
    stores = [RedisStore(server.url, prefix=prefix, vault_cipher=Reversed()) for _ in range(2)]
    async with Runs(stores[0]) as here, Runs(stores[1]) as there:
        run = await here.start(made, owner="ann")
        found = await there.find(run.id, owner="ann")
        async for event in found.attach():
            if event.type == "approval-requested":
                (question,) = await found.questions()
                assert {"to": ANN} == question.call.arguments
                await found.decide(question.call.id, decision)
        assert TEXT == (await found.wait()).text
        assert not [name for name, data in (await stored(server, prefix)).items() if has_value(data)]
    desk.check()


@pytest.mark.servers
async def test_a_process_with_another_cipher(server: RedisServer, prefix: str) -> None:
    made = Desk().chat()
    stores = [RedisStore(server.url, prefix=prefix, vault_cipher=cipher) for cipher in (Reversed(), None)]
    async with Runs(stores[0]) as here, Runs(stores[1]) as there:
        run = await here.start(made, owner="ann")
        with pytest.raises(ValueError, match="encrypted with another `vault_cipher`"):
            await there.find(run.id, owner="ann")


@pytest.mark.servers
async def test_a_reader_knows_kinds_whose_values_are_found_later(server: RedisServer, prefix: str) -> None:
    """The run has no values when the reader begins."""
    began = anyio.Event()

    async def find() -> str:
        """Find an address, after the reader has begun."""
        await began.wait()
        return BO

    model = ScriptedModel([[NativeToolCall("find", {}, "c1", "c1")], "Found <EMAIL_1>."])
    text = TextOptions(vault=Vault([rules.phone(), rules.email()]))
    async with (
        Runs(RedisStore(server.url, prefix=prefix)) as here,
        Runs(RedisStore(server.url, prefix=prefix)) as there,
    ):
        run = await here.start(chat(model, [{"role": "user", "content": "Go."}], tools=[find], text=text), owner="ann")
        events = []
        async for event in (await there.find(run.id, owner="ann")).attach():
            events.append(event)
            began.set()
        assert [BO] == [event.result for event in events if isinstance(event, Executed)]
        assert text_of(events) == f"Found {BO}."


@pytest.mark.servers
async def test_values_are_stored_before_the_events_that_need_them(
    server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the run finds new values while its process stores the earlier ones."""
    store, run_script = redis_server.RedisServer.store, redis_server.RedisServer.run_script
    written, refused = 0, list[LookupError]()

    async def slow(to: Any, key: str, field: str, *args: Any, **options: Any) -> Any:
        answer = await store(to, key, field, *args, **options)
        while field == "vault" and not run._has_done:
            await anyio.lowlevel.checkpoint()
        return answer

    async def checked(to: Any, script: str, keys: Any, *args: Any) -> Any:
        nonlocal written
        answer = await run_script(to, script, keys, *args)
        if script in (redis_protocol.APPEND, redis_protocol.END):
            values = VaultReader(to, run._journal.key)
            await values.read()
            assert values.vault is not None
            for data in (each for each in args if isinstance(each, bytes)):
                written += 1
                try:
                    restored(values.vault, data)
                except LookupError as error:
                    refused.append(error)
        return answer

    def find() -> str:
        """Find the next address."""
        return f"{next(numbers)}@example.org"

    numbers = itertools.count()
    calls = [[NativeToolCall("find", {}, id, id)] for id in ("c1", "c2", "c3")]
    text = TextOptions(vault=Vault([rules.email()]))
    async with Runs(RedisStore(server.url, prefix=prefix)) as runs:
        run = await runs.start(chat(ScriptedModel([*calls, "Found."]), ASK, tools=[find], text=text), owner="ann")
        monkeypatch.setattr(redis_server.RedisServer, "store", slow)
        monkeypatch.setattr(redis_server.RedisServer, "run_script", checked)
        await run.wait()
    assert written > 10
    assert not refused


def not_encrypted(kept: bytes) -> dict[str, Any]:
    encrypt, decrypt = Reversed.encrypt, Reversed.decrypt
    return {
        f"{__name__}.Reversed.encrypt": lambda to, data: data if kept in data else encrypt(to, data),
        f"{__name__}.Reversed.decrypt": lambda to, data: data if kept in data else decrypt(to, data),
    }


NO_NUMBERS = {"streamtools.serving.stored_vault.with_texts": lambda value, change, *_: with_texts(value, change)}
FAULTS: list[tuple[dict[str, Any], Any]] = [
    ({"streamtools.serving.leased_run.LeasedRun.hide": lambda run, data, **options: data}, True),
    (NO_NUMBERS, True),
    (not_encrypted(b'{"call":'), True),  # outcomes in the ledger
    (not_encrypted(b'"decision"'), DENIED),
    ({"streamtools.TextOptions.for_run": lambda options, earlier=None: options}, True),
]


@pytest.mark.servers
@pytest.mark.parametrize(("faults", "decision"), FAULTS)
async def test_a_planted_fault_is_caught(
    faults: dict[str, Any], decision: Any, server: RedisServer, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, fault in faults.items():
        monkeypatch.setattr(name, fault)
    with pytest.raises((AssertionError, ExceptionGroup)):
        await test_a_waiting_run_on_redis(server, prefix, decision)


@pytest.mark.parametrize("kind", ["stream", "manager", "run", "websocket"])
async def test_the_log_of_a_failed_response_has_placeholders(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The exception of a custom format, which the server gets, has the value. The log has its traceback."""

    def fail(event: UIEvent) -> None:
        if has_value(text := getattr(event, "text", "")):
            raise ValueError(text)

    @asynccontextmanager
    async def manager() -> AsyncIterator[Any]:
        async with Desk().chat() as events:
            yield events

    async with Runs() as runs:
        exchange, socket = Exchange(), Socket('{"message": "Hello"}')
        readable = manager() if kind == "manager" else Desk().chat()
        if kind == "run":
            readable = await runs.start(readable, owner="ann")
        if kind == "websocket":
            served = serve_websocket(socket, lambda *_: readable, format=outputs.custom(fail))
        else:
            response = event_stream_response(readable, format=outputs.custom(fail))
            served = response(exchange.scope, exchange.receive, exchange.send)
        with pytest.raises(ValueError, match=ANN):
            await served
    assert "\nValueError: " in caplog.text
    assert "<EMAIL_" in caplog.text
    assert not has_value(caplog.text)


async def test_an_error_of_a_late_message_is_marked_for_the_log() -> None:
    """With `max_rate`, another task may send it."""

    class Failing(EventSink):
        async def send(self, events: Any) -> None:
            raise ZeroDivisionError

    marked = list[Exception]()
    sink = PacedSink(Failing(), ResponseWriter(Exchange().send, keep_alive=None, send_timeout=None), marked.append)
    with pytest.raises(ZeroDivisionError) as caught:
        await sink.send([Start("r")])
    assert [caught.value] == marked
