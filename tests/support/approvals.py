"""Tools that need an approval or the client, and chats that wait for a decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import cache
from typing import Any, NamedTuple

from streamtools import ToolRegistry, chat
from streamtools.conversation import Chat, ScriptedModel, ScriptedReply
from streamtools.events import NativeToolCall, ProviderCompleted, UIEvent
from streamtools.tools import MemoryLedger, Tool
from tests.support.options import grouped
from tests.support.stories import story

QUESTION = {"role": "user", "content": "Pay Ann 5."}
ANN = {"to": "Ann", "amount": 5}


class Bank:
    """Records payments. `pay` needs an approval, `look` does not, and `sign` is a client tool."""

    def __init__(self, **options: Any) -> None:
        self.paid: list[tuple[str, int]] = []
        kind: Any = type(self)
        pay, *others = map(copy, _tools_of(kind))
        if options:
            pay = pay.replace(**options)
        for tool in (pay, *others):
            tool.function = getattr(self, tool.name)
        self.tools = ToolRegistry(pay, others)

    async def pay(self, to: str, amount: int) -> str:
        self.paid.append((to, amount))
        return f"paid {amount} to {to}"

    async def look(self) -> str:
        return "looked"

    async def sign(self, text: str) -> dict[str, int]:
        raise AssertionError("a tool of the front end is not run here")


@cache
def _tools_of(kind: Any) -> list[Tool[..., Any]]:
    """Return the tools of a bank. They are cached, because reading a signature takes milliseconds."""
    bank = kind.__new__(kind)
    return [Tool(bank.pay, requires_approval=True), Tool(bank.look), Tool(bank.sign, client=True)]


def calls(*wanted: tuple[str, dict[str, Any]]) -> ScriptedReply:
    """Return a turn with native calls, whose ids are n0, n1 and so on."""
    made = [NativeToolCall(name, given, str(at), f"n{at}") for at, (name, given) in enumerate(wanted)]
    return [*made, ProviderCompleted(finish_reason="tool_calls")]


def block(name: str, arguments: str) -> str:
    return f'~~~tool_call\n{{"name":"{name}","arguments":{arguments}}}\n~~~\n'


class EndedRun(NamedTuple):
    """A run that has ended."""

    events: list[UIEvent]
    chat: Chat
    model: ScriptedModel

    @property
    def shown(self) -> list[str]:
        """The story from the first call on, without the ends of steps."""
        lines = [
            line for line in story(self.events) if not line.startswith(("start", "step", "thinking", "not", "n0 is"))
        ]
        return [line for line in lines if " is " not in line]


async def run_chat(
    *answers: ScriptedReply,
    tools: Any,
    messages: Sequence[Any] = (QUESTION,),
    then: Callable[[UIEvent, Chat], Awaitable[None] | None] = lambda event, chat: None,
    **options: Any,
) -> EndedRun:
    """Run a chat with a model that gives these answers. `then` is called with each event."""
    model = ScriptedModel(answers)
    seen: list[UIEvent] = []
    async with chat(model, messages, tools=tools, **grouped(**options)) as events:
        async for event in events:
            seen.append(event)
            if (done := then(event, events)) is not None:
                await done
    assert not model.left
    return EndedRun(seen, events, model)


async def resume(held: EndedRun, *answers: Any, tools: Any, decisions: Any = None, **options: Any) -> EndedRun:
    """Return the run that resumes `held`."""
    given = {"resume": held.chat.suspension, "ledger": MemoryLedger(), "messages": held.chat.messages(), **options}
    return await run_chat(*answers, tools=tools, decisions=decisions, **given)
