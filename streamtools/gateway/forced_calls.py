"""A call that is forced, where the upstream keeps its model to a schema: it comes as JSON, without a marker. Sans-IO.

A model that is taught in text may write anything all the same, whatever it is told. The servers that are known to take
a schema are given that of the call; what they answer with is read as the body of a `tilde_fence`, whichever dialect is
taught. An answer that is no JSON, because the server has not kept to it, is read as any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.gateway.client_requests import Asked, as_tools
from streamtools.gateway.plan import Plan
from streamtools.limits import DEFAULT_LIMITS
from streamtools.parsing.dialects import Dialect, tilde_fence
from streamtools.tools.schemas import inline

REFUSES = (400, 422, 500, 501)
"""How a server answers that cannot write by a schema."""

_KEEP_TO_SCHEMAS = ("llama.cpp", "vllm", "ollama")


def keep_to_call(asked: Asked, plan: Plan, upstream: str) -> tuple[Asked, Plan]:
    """Return a request with the form that its answer has to have, if a call is forced and the upstream takes a form.

    A `response_format` of the client's own stays. Raises `Refused` for tools that cannot be taught.
    """
    forced = asked.choice.mode in ("required", "tool")
    if plan.taught is None or not forced or upstream not in _KEEP_TO_SCHEMAS or asked.options.get("response_format"):
        return asked, plan
    wanted = {"name": "call", "schema": _schema_of(asked)}
    options = {**asked.options, "response_format": {"type": "json_schema", "json_schema": wanted}}
    enabled = plan.dialects if _fence_of(plan.dialects) else (*plan.dialects, tilde_fence())
    return asked._replace(options=options), plan._replace(dialects=enabled, alone=True)


def ask_freely(asked: Asked, plan: Plan) -> tuple[Asked, Plan]:
    """Return the request without that form."""
    options = {name: value for name, value in asked.options.items() if name != "response_format"}
    return asked._replace(options=options), plan._replace(alone=False)


class CallAlone:
    """Puts the marker before a call that comes without one: `read` returns the events of an answer as they are read."""

    def __init__(self, dialects: Iterable[Dialect]) -> None:
        fence = _fence_of(dialects)
        assert fence is not None
        self._marker = fence.write_call("x", {}).partition("{")[0]
        self.begin()

    def begin(self) -> None:
        self._begun = False
        self._blank: list[str] = []  # white space before anything else

    def read(self, events: Iterable[SourceEvent]) -> list[SourceEvent]:
        """Return the events, with the marker before the first character of the text."""
        read: list[SourceEvent] = []
        for event in events:
            if type(event) is TextDelta and not self._begun:
                self._blank.append(event.text)
                if not event.text.strip():
                    continue
                event, self._begun = TextDelta(self._marked(self._take_blank())), True
            elif type(event) is ProviderCompleted:
                if self._blank:
                    read.append(TextDelta(self._take_blank()))
                if event.text:
                    event = msgspec.structs.replace(event, text=self._marked(event.text))
                self._begun = False  # the next answer has
            read.append(event)
        return read

    def _take_blank(self) -> str:
        held = "".join(self._blank)
        self._blank.clear()
        return held

    def _marked(self, text: str) -> str:
        begun = text.lstrip()
        return self._marker + begun if begun.startswith(("{", "[")) else text


def _fence_of(dialects: Iterable[Dialect]) -> Dialect | None:
    return next((each for each in dialects if each.id == "tilde_fence"), None)


def _schema_of(asked: Asked) -> dict[str, Any]:
    """Return the schema of one call, or of a list of them where a client wants as many as there are."""
    names = {asked.choice.name} if asked.choice.name else None if asked.allowed is None else {*asked.allowed}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": each.name}, "arguments": inline(each.parameters)},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for each in as_tools(asked.tools)
        if names is None or each.name in names
    ]
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    if asked.choice.name or not asked.parallel:
        return one
    return {"type": "array", "items": one, "minItems": 1, "maxItems": DEFAULT_LIMITS.calls}
