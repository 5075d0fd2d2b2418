"""Converts the events of an upstream's answer to bytes in the client's format. Sans-IO.

A state machine finds calls in the text and returns events. `ClientAnswer` decides which of these events the client
gets, and an encoder converts them to bytes. `ClientAnswer` drops calls that the client does not accept.

Text in the request may be *neutralized*: changed so that it makes no call if the model repeats it. In the arguments of
calls, `ClientAnswer` restores the original text.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import msgspec

from streamtools import events
from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.gateway.client_requests import Client, ClientRequest, as_tools
from streamtools.gateway.settings import Settings
from streamtools.gateway.upstream_requests import TEXT_CALL_ID, CallPlan, calls_in
from streamtools.history.content import string_at
from streamtools.history.writing import valid_name
from streamtools.json_values import decode, with_texts
from streamtools.logs import Logger
from streamtools.machine.state_machine import StreamMachine
from streamtools.outputs.anthropic_events import AnthropicEncoder
from streamtools.outputs.non_streaming import error_body
from streamtools.outputs.openai_chunks import OpenAIEncoder
from streamtools.outputs.responses_events import ResponsesEncoder
from streamtools.outputs.sse import Encoder
from streamtools.parsing.dialects.neutralizing import restore
from streamtools.rules.matcher import shown
from streamtools.rules.vault import Vault
from streamtools.sources.provider_terms import read_fault

_log = Logger(__name__)

_CUT = ("length", "content_filter")  # finish reasons of an incomplete answer
_NOT_MALFORMED = (Code.SUPERSEDED, Code.TOO_MANY_CALLS, Code.TOOL_CHOICE_VIOLATION)  # errors about well-formed calls

OnEvent: TypeAlias = Callable[[events.UIEvent], object]
"""A function that is called with each event of an answer, except `text` events."""


class ClientAnswer:
    """One answer for the client. `feed` and `close` return its bytes.

    `machine` finds calls in the text of the model. `identity` returns the id of the answer and the name of the model,
    as the upstream sent them. `neutralized` says whether the request contains neutralized text. `watch` is called with
    each event except `text` events. `vault` has the values of the request, and restores them in the answer.
    """

    def __init__(
        self,
        settings: Settings,
        request: ClientRequest,
        plan: CallPlan,
        *,
        identity: Callable[[], tuple[str | None, str | None]],
        neutralized: bool,
        watch: OnEvent | None,
        vault: Vault | None = None,
    ) -> None:
        self._settings, self._request, self._plan, self._vault = settings, request, plan, vault
        self._identity = identity
        self._watch = watch
        # With fallbacks, calls of a failed upstream may still be discarded. So the client gets calls only at the end.
        self._calls_at_end = bool(settings.fallbacks)
        self._dialects = plan.dialects if neutralized else ()  # for restoring arguments
        drops_calls = request.choice.mode == "none" and plan.taught is not None
        self._max_calls = 0 if drops_calls else None if request.parallel else 1  # None means no limit
        in_json = string_at(request.options.get("response_format"), "type").startswith("json")
        restoring = [] if vault is None else [vault.rule(settings.text_rules, in_json=in_json)]
        self.machine = StreamMachine(
            dialects=plan.readable,
            tools=as_tools(request.tools) if plan.dialects else (),
            execute="never",
            native_tool_calls=plan.native,
            call_deltas=not (neutralized or self._calls_at_end or restoring),
            on_malformed=settings.on_malformed,
            limits=settings.limits,
            text_rules=[*restoring, *settings.text_rules],
            new_id=settings.new_id or self._new_id,
        )
        if vault is not None:
            self.machine.hide = partial(vault.replace, from_model=True)
        self.machine.reserve(calls_in(request.history))
        self.shown: list[str] = []
        """The pieces of text that the client got."""
        self.used_dialect = ""
        """The dialect of the last call."""
        self._encoder: Encoder | None = None
        self._admitted: dict[str, None] = {}  # the ids of calls that the client gets
        self._named: set[str] = set()  # the ids of calls for which the client got a `CallStart`
        self._malformed: list[events.Error] = []  # the errors of malformed calls

    def feed(self, batch: list[events.SourceEvent]) -> bytes:
        """Read events of the upstream. Returns bytes for the client."""
        return self._write(list(chain.from_iterable(map(self.machine.feed, batch))))

    def close(self) -> bytes:
        """End the answer of the model. Returns the last bytes for the client."""
        return self._write(self.machine.close())

    def continue_elsewhere(self, model: str) -> str:
        """Prepare for the answer of another upstream after `model`, the current model, has failed.

        Incomplete calls and complete native calls are discarded. If the plan has `only_call`, complete calls in text
        are discarded, too. Returns the text that the other model must continue.
        """
        shown = None if self._plan.only_call else "".join(self.shown)
        batch, written = self.machine.switch_model(shown, model)
        for event in batch:
            if self._watch is not None:
                self._watch(event)
            if isinstance(event, events.Error) and event.call_id is not None:
                self._admitted.pop(event.call_id, None)
                self._named.discard(event.call_id)
        self._malformed = []
        return written

    def _new_id(self) -> str:
        prefix = "toolu_" if self._request.client == "anthropic" else "call_"
        return prefix + (TEXT_CALL_ID if self._plan.dialects else "") + secrets.token_hex(9)

    def _make_encoder(self) -> Encoder:
        request = self._request
        id, model = self._identity()
        options: dict[str, Any] = {
            "model": model or request.model,
            "custom": frozenset(tool.name for tool in request.tools if tool.custom),
            "call_deltas": self._plan.native is not None and not self._calls_at_end,
        }
        if request.client == "anthropic":
            return AnthropicEncoder(**options, id=id and f"msg_{valid_name(id)}")
        if request.client == "responses":
            return ResponsesEncoder(**options, id=id and valid_name(id), request=request.body)
        include_usage = request.include_usage or not request.streamed
        return OpenAIEncoder(**options, id=id, include_usage=include_usage)

    def _write(self, batch: list[events.UIEvent]) -> bytes:
        """Return the bytes of the events."""
        if not batch:
            return b""
        if self._encoder is None:
            self._encoder = self._make_encoder()
        encode = self._encoder.encode
        parts: list[bytes] = []
        for event in batch:
            if type(event) is events.Text:
                self.shown.append(event.text)
                parts.append(encode(event))
            else:
                if self._watch is not None:
                    self._watch(event)
                parts += [encode(shown) for shown in self._for_client(event)]
        return b"".join(parts)

    def _for_client(self, event: events.UIEvent) -> Iterable[events.UIEvent]:
        """Return the events that the client gets in place of `event`."""
        match event:
            case events.CallStart(call_id):
                if not self._admit(call_id):
                    return ()
                self._named.add(call_id)
            case events.CallDelta(call_id):
                return (event,) if call_id in self._named else ()
            case events.Call(call):
                self.used_dialect = call.dialect
                return (events.Call(self._restored(call), event.seq),) if self._admit(call.id) else ()
            case events.Error(call_id=str() as call_id, call=None):
                if not self._admit(call_id):
                    return ()
                if event.code not in _NOT_MALFORMED:
                    self._malformed.append(event)
            case events.Done():
                return self._end(event)
        return (event,)

    def _admit(self, call_id: str) -> bool:
        """Return whether the client gets this call. The first `_max_calls` calls are admitted."""
        if call_id in self._admitted:
            return True
        if self._max_calls is not None and len(self._admitted) >= self._max_calls:
            return False
        self._admitted[call_id] = None
        return True

    def _restored(self, call: ToolCall) -> ToolCall:
        """Return `call` with the id and the arguments that the client gets."""
        if self._plan.native is None and call.dialect == NATIVE:  # the id must not have the mark of calls in text
            call = msgspec.structs.replace(call, id=call.id.replace(TEXT_CALL_ID, "", 1))
        arguments = restore(call.arguments, self._dialects) if self._dialects else call.arguments
        if self._vault is not None:
            arguments = with_texts(arguments, partial(shown, [self._vault.rule()]))
        return call if arguments is call.arguments else msgspec.structs.replace(call, arguments=arguments)

    def _end(self, done: events.Done) -> Iterable[events.UIEvent]:
        """Return the events that end the answer. `pending` contains only calls that the client gets.

        A malformed call may cause an error. A truncated call is always reported. A call with any other fault is
        reported only if the client sees neither that call nor a valid one. Only the first error is sent.
        """
        pending = [self._restored(call) for call in done.pending if call.id in self._admitted]
        done = msgspec.structs.replace(done, pending=pending)
        is_cut = done.reason == "failed" or done.finish_reason in _CUT
        for error in () if is_cut else self._malformed:
            shown = self._request.client != "anthropic" and error.call_id in self._named
            if error.code is Code.TRUNCATED or not (shown or pending):
                message = f"the model wrote a call that cannot be read: {error.message}"
                return (events.Error(error.code, message), done)
        return (done,)


def write_refusal(client: Client, status: int, body: bytes) -> bytes:
    """Return the error body for the client. The upstream refused the request with the status and the error `body`."""
    try:
        value = decode(body)
    except ValueError:
        value = None
    _log.warning("upstream_refused", status=status)
    if client == "openai" and isinstance(value, dict) and "error" in value:
        return body
    hint = ": check the URL of the upstream, which usually ends with /v1" if status == 404 else ""
    return error_body(client, status, read_fault(value, f"the upstream answered with status {status}{hint}").message)
