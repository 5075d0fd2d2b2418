"""AG-UI, the protocol of CopilotKit and others, version 1.0. Sans-IO.

Its client checks the order of the events and fails where one is out of place: everything is closed before
`RUN_FINISHED`, nothing follows `RUN_ERROR`, and what is absent is left out, never null. It builds messages for the next
request of what it reads, so their ids are unique beyond one run (they begin with the run's id), all calls of one turn
belong to one message of the assistant, unless the model thinks between them, and each call that ended has a result:
without one it is a call that the front end is to run itself.

The outcome `cancelled`, `pendingToolCallIds` and `usage` are of version 1.0, and go only to a reader that declared it:
readers from before it refuse them. The outcome `interrupt` goes to all: it is older than 1.0 (CopilotKit holds such a
client, 0.0.59), and readers from before it pass over outcomes. Clients parse the arguments of calls before they send
them back, so those of a malformed call are an object too, with what was written in it.

Source: the packages `@ag-ui/client` 0.0.27 to 0.0.59 and 1.0.0 (`verify`, `apply/default`, `legacy/convert`) and
`ag-ui-protocol` 1.0.0, whose models are made of the schema of 1.0.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from streamtools.calls import ToolCall
from streamtools.events import Done, Error, Partial
from streamtools.outputs.encoder import encode_part, present, to_json
from streamtools.outputs.paired import UNNAMED, Channel, KnownCall, PairedEncoder
from streamtools.outputs.protected import Protected, of_call

PROTOCOL_VERSION = "1.0"

MALFORMED = "$malformed"
"""The argument that holds what stood in the place of arguments; `history/ag_ui_messages.py` reads it."""

_version = re.compile(r"(\d{1,9})\.\d{1,9}")


class AGUIEncoder(PairedEncoder):
    """Writes AG-UI 1.0.

    `thread_id`, `run_id` and `protocol_version` are those of the request (`threadId`, `runId`, `protocolVersion`).
    Without ids, those of our own run are sent; without a version of 1.0 or later, nothing is sent that clients from
    before it would refuse, CopilotKit's among them: the calls that are left to the front end by name, the tokens of the
    run, and that it was cancelled (which is an error to them). They are asked for approvals all the same. `known_calls`
    are the ids of calls that the messages of the request hold already, of a run that resumes another, and
    `known_results` those whose results they hold too: a second one would stand beside it. `state` is the member of the
    client's state under which the value of an `output` grows, by `STATE_DELTA`; with None, none are sent. JSON Patch
    cannot add to a text, so a long one is sent again whenever it has grown by a quarter, and at its end.
    """

    def __init__(
        self,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        protocol_version: str | None = None,
        known_calls: Collection[str] = (),
        known_results: Collection[str] = (),
        state: str | None = "output",
    ) -> None:
        super().__init__(known_calls)
        self._known_results = {known_results} if isinstance(known_results, str) else set(known_results)
        self._thread_id = thread_id
        self._run_id = run_id or ""
        declared = _version.fullmatch(protocol_version or "")
        self._current = declared is not None and int(declared[1]) >= 1
        self._own_id = ""  # of the run: one that goes on behind an approval may have the client's id of that before
        self._messages = 0
        self._state = state
        self._grows = False  # the reader has been sent the beginning of the value
        self._pieces: list[str] = []  # of the text that is open in it
        self._size = self._sent = 0  # its characters, and how many of them the reader has
        self._parent = ""  # the assistant's message that calls belong to; "" until there is one in this step
        self._block_id, self._delta_head = "", b""  # of the block; here, so that CPython shares the keys of all dicts

    def _write_start(self, run_id: str | None) -> bytes:
        self._run_id = self._run_id or run_id or "run"
        self._own_id = run_id or self._run_id
        thread_id = self._thread_id or self._run_id
        return encode_part("RUN_STARTED", threadId=thread_id, runId=self._run_id, protocolVersion=PROTOCOL_VERSION)

    def _write_step_start(self, step: int) -> bytes:
        self._parent = ""
        return encode_part("STEP_STARTED", stepName=f"step-{step}")

    def _write_step_end(self, step: int) -> bytes:
        self._parent = ""
        return encode_part("STEP_FINISHED", stepName=f"step-{step}")

    def _write_block_start(self, channel: Channel, number: int) -> bytes:
        message_id = self._block_id = self._new_id()
        head = b'data: {"type":"%b","messageId":%b,"delta":'
        if channel == "text":
            self._parent = message_id
            self._delta_head = head % (b"TEXT_MESSAGE_CONTENT", to_json(message_id))
            return encode_part("TEXT_MESSAGE_START", messageId=message_id, role="assistant")
        self._parent = ""  # else what comes behind it would come back before it
        self._delta_head = head % (b"REASONING_MESSAGE_CONTENT", to_json(message_id))
        opened = encode_part("REASONING_START", messageId=message_id)
        return opened + encode_part("REASONING_MESSAGE_START", messageId=message_id, role="reasoning")

    def _write_block_end(self, channel: Channel, number: int, kept: Protected | None) -> bytes:
        signed = self._keep("message", self._block_id, kept)
        if channel == "text":
            return signed + encode_part("TEXT_MESSAGE_END", messageId=self._block_id)
        closed = signed + encode_part("REASONING_MESSAGE_END", messageId=self._block_id)
        return closed + encode_part("REASONING_END", messageId=self._block_id)

    def _write_call_start(self, call_id: str, name: str) -> bytes:
        self._parent = self._parent or self._new_id()
        return encode_part("TOOL_CALL_START", toolCallId=call_id, toolCallName=name, parentMessageId=self._parent)

    def _write_call_delta(self, call_id: str, text: str) -> bytes:
        return encode_part("TOOL_CALL_ARGS", toolCallId=call_id, delta=text)

    def _write_call(self, call: ToolCall, known: KnownCall) -> bytes:
        written = b"" if known.pieces else self._write_call_delta(call.id, to_json(call.arguments).decode())
        written += self._keep("tool-call", call.id, of_call(call, self._format))
        return written + encode_part("TOOL_CALL_END", toolCallId=call.id)

    def _keep(self, of: str, id: str, kept: Protected | None) -> bytes:
        """Return what a message or a call is signed by, for the client to keep."""
        if kept is None:
            return b""
        return encode_part("REASONING_ENCRYPTED_VALUE", subtype=of, entityId=id, encryptedValue=kept.as_value())

    def _write_partial(self, partial: Partial) -> bytes:
        path, value = partial.path, partial.value
        if self._state is None or partial.call_id is not None:  # a client reads the arguments of calls itself
            return b""
        self._grows = self._grows or not path
        op = "add"
        if isinstance(value, str):
            op = "replace" if self._pieces else "add"
            self._pieces.append(value)
            self._size += len(value)
            if not partial.complete and self._sent and self._size < self._sent * 1.25:
                return b""
            self._sent, value = self._size, "".join(self._pieces)
            self._pieces = [value]
            if partial.complete:
                self._pieces, self._size, self._sent = [], 0, 0
        elif partial.complete and isinstance(value, dict | list):
            return b""
        if not self._grows:  # these events begin in the middle of a run
            return b""
        place = "".join("/" + str(each).replace("~", "~0").replace("/", "~1") for each in (self._state, *path))
        return encode_part("STATE_DELTA", delta=[{"op": op, "path": place, "value": value}])

    def _write_progress(self, known: KnownCall, data: Any) -> bytes:
        return encode_part("CUSTOM", name="tool-progress", value={"toolCallId": known.id, "progress": data})

    def _write_result(self, call: ToolCall, result: Any) -> bytes:
        return self._answer(call.id, result if isinstance(result, str) else to_json(result).decode())

    def _write_refusal(self, error: Error, known: KnownCall | None) -> bytes:
        assert error.call_id is not None
        written = b""
        if known is None:
            written = self._write_call_start(error.call_id, error.call.name if error.call else UNNAMED)
        if known is None or not (known.whole or known.pieces):
            arguments = error.call.arguments if error.call else {MALFORMED: error.raw} if error.raw else {}
            written += self._write_call_delta(error.call_id, to_json(arguments).decode())
        if known is None or not known.whole:
            written += encode_part("TOOL_CALL_END", toolCallId=error.call_id)
        return written + self._answer(error.call_id, error.message)

    def _write_failure(self, failure: Error) -> bytes:
        return encode_part("RUN_ERROR", message=failure.message, code=failure.code.value, usage=self._counted_usage())

    def _write_end(self, done: Done) -> bytes:
        if done.reason == "cancelled" and not self._current:
            return encode_part("RUN_ERROR", message="The run was cancelled.", code="cancelled")
        outcome: dict[str, Any] | None = None
        if done.reason == "cancelled":
            outcome = {"type": "cancelled"}
        elif done.reason == "finished" and done.pending:
            asked = [call.id for call in done.pending if call.id in self._questions]
            interrupts = [{"id": each, "reason": "tool_approval", "toolCallId": each} for each in asked]
            if interrupts:
                outcome = {"type": "interrupt", "interrupts": interrupts}
            elif self._current:
                outcome = {"type": "success", "pendingToolCallIds": [call.id for call in done.pending]}
        return encode_part(
            "RUN_FINISHED",
            threadId=self._thread_id or self._run_id,
            runId=self._run_id,
            result=present(reason=done.reason, finishReason=done.finish_reason, conversationId=done.conversation_id),
            outcome=outcome,
            usage=self._counted_usage(),
        )

    def _answer(self, call_id: str, content: str) -> bytes:
        """Return the message that answers a call; there is no sign by which an error differs from a result."""
        if call_id in self._known_results:
            return b""
        return encode_part(
            "TOOL_CALL_RESULT", messageId=self._new_id(), toolCallId=call_id, content=content, role="tool"
        )

    def _counted_usage(self) -> list[dict[str, Any]] | None:
        usage = self._usage
        if usage is None or not self._current:
            return None
        counted = present(
            inputTokens=usage.input,
            outputTokens=usage.output,
            totalTokens=usage.total,
            reasoningTokens=usage.reasoning,
            cachedInputTokens=usage.cache_read,
            cacheWriteInputTokens=usage.cache_write,
        )
        return [counted] if counted else None

    def _new_id(self) -> str:
        self._messages += 1
        return f"{self._own_id}-{self._messages}"
