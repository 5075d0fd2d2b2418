"""Writes AG-UI 1.0, the protocol of CopilotKit and other front ends. Sans-IO.

The client checks the order of the events, and fails if it is wrong. All messages, calls and steps must end before
`RUN_FINISHED`, and no event may follow `RUN_ERROR`. JSON fields without a value must be omitted, because the client
refuses null.

The client builds the messages of its next request from the events. So message ids must differ between runs: they start
with the id of the run. Consecutive calls of a turn belong to one assistant message. Text or reasoning between two calls
starts a new message. The front end runs the calls that have no result. So a call that failed or must not run gets its
error as the result.

Version 1.0 added the outcome `cancelled` and the fields `pendingToolCallIds` and `usage`. They are sent only to a
client that declares version 1.0 or later, because earlier clients refuse them. The outcome `interrupt` is sent to all
clients. Version 0.0.59, which CopilotKit uses, already has this outcome, and older clients ignore outcomes.

Clients parse the arguments of a call before they send them back. So the arguments of a malformed call are an object
that contains the text of the model. If a part of the arguments was already sent, no such object is sent.

Source: the packages `@ag-ui/client` 0.0.27 to 0.0.59 and 1.0.0 (`verify`, `apply/default`, `legacy/convert`) and
`ag-ui-protocol` 1.0.0, whose models are generated from the schema of 1.0.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from streamtools.calls import ToolCall
from streamtools.events import COMPLETE, Done, Error
from streamtools.outputs.front_end import UNNAMED, Channel, FrontEndEncoder, SentCall, Signature
from streamtools.outputs.sse import encode_part, present, to_json

PROTOCOL_VERSION = "1.0"

MALFORMED = "$malformed"
"""The name of the argument that holds the text of a malformed call. Clients accept only an object as arguments."""


class AGUIEncoder(FrontEndEncoder):
    """Writes AG-UI 1.0.

    `thread_id`, `run_id` and `protocol_version` are the fields `threadId`, `runId` and `protocolVersion` of the
    request. If `run_id` is missing, the id in the `start` event is used. If `thread_id` is missing, the run id is used.
    Clients before version 1.0, such as CopilotKit, refuse three things: the list of calls that the front end must run
    (`pendingToolCallIds`), the token counts (`usage`), and the outcome `cancelled`. If `protocol_version` is missing or
    below 1.0, these are not sent, and a cancellation is sent as an error. Approvals are requested in every version.

    `known_calls` is for a run that resumes another run: the ids of calls that the messages of the request contain.
    `known_results` are the ids of calls whose results these messages contain. The results are not sent again.

    The progress of a tool is a `CUSTOM` event with the name `tool-progress`, and each part of a typed answer is one
    with the name `partial`. If another process or another model continues the answer, a `CUSTOM` event `reconnecting`
    or `failed-over` comes before the rest.
    """

    def __init__(
        self,
        *,
        thread_id: str | None = None,
        run_id: str | None = None,
        protocol_version: str | None = None,
        known_calls: Collection[str] = (),
        known_results: Collection[str] = (),
    ) -> None:
        super().__init__(known_calls)
        self._known_results = {known_results} if isinstance(known_results, str) else set(known_results)
        self._thread_id = thread_id
        self._run_id = run_id or ""
        # Whether the client declares version 1.0 or a later version.
        self._is_current = (protocol_version or "").startswith(tuple("123456789"))
        self._message_prefix = ""  # the id of this run; the client may send one `runId` for two runs
        self._message_count = 0
        self._parent_id = ""  # id of the assistant message to which the next call belongs, or empty
        self._block_id = ""

    def _write_start(self, run_id: str | None) -> bytes:
        self._run_id = self._run_id or run_id or "run"
        self._message_prefix = run_id or self._run_id
        thread_id = self._thread_id or self._run_id
        return encode_part("RUN_STARTED", threadId=thread_id, runId=self._run_id, protocolVersion=PROTOCOL_VERSION)

    def _write_step_start(self, step: int) -> bytes:
        self._parent_id = ""
        return encode_part("STEP_STARTED", stepName=f"step-{step}")

    def _write_step_end(self, step: int) -> bytes:
        self._parent_id = ""
        return encode_part("STEP_FINISHED", stepName=f"step-{step}")

    def _write_block_start(self, channel: Channel, number: int) -> bytes:
        message_id = self._block_id = self._new_id()
        head = b'data: {"type":"%b","messageId":%b,"delta":'
        if channel == "text":
            self._parent_id = message_id
            self._delta_prefix = head % (b"TEXT_MESSAGE_CONTENT", to_json(message_id))
            return encode_part("TEXT_MESSAGE_START", messageId=message_id, role="assistant")
        # Calls after reasoning need a new message. In the old message, the client would show them before the reasoning.
        self._parent_id = ""
        self._delta_prefix = head % (b"REASONING_MESSAGE_CONTENT", to_json(message_id))
        written = encode_part("REASONING_START", messageId=message_id)
        return written + encode_part("REASONING_MESSAGE_START", messageId=message_id, role="reasoning")

    def _write_block_end(self, channel: Channel, number: int, signature: Signature | None) -> bytes:
        written = self._write_signature("message", self._block_id, signature)
        if channel == "text":
            return written + encode_part("TEXT_MESSAGE_END", messageId=self._block_id)
        written += encode_part("REASONING_MESSAGE_END", messageId=self._block_id)
        return written + encode_part("REASONING_END", messageId=self._block_id)

    def _write_call_start(self, call_id: str, name: str) -> bytes:
        self._parent_id = self._parent_id or self._new_id()
        return encode_part("TOOL_CALL_START", toolCallId=call_id, toolCallName=name, parentMessageId=self._parent_id)

    def _write_call_delta(self, call_id: str, text: str) -> bytes:
        return encode_part("TOOL_CALL_ARGS", toolCallId=call_id, delta=text)

    def _write_call(self, call: ToolCall, open_call: SentCall, signature: Signature | None) -> bytes:
        written = b"" if open_call.has_deltas else self._write_call_delta(call.id, to_json(call.arguments).decode())
        written += self._write_signature("tool-call", call.id, signature)
        return written + encode_part("TOOL_CALL_END", toolCallId=call.id)

    def _write_signature(self, subtype: str, id: str, signature: Signature | None) -> bytes:
        """Return an event with the signature of a message or a call, which the client keeps."""
        if signature is None:
            return b""
        return encode_part(
            "REASONING_ENCRYPTED_VALUE", subtype=subtype, entityId=id, encryptedValue=signature.as_string()
        )

    def _write_notice(self, name: str, data: dict[str, Any], id: str | None = None) -> bytes:
        return encode_part("CUSTOM", name=name, value=data)

    def _write_result(self, call: ToolCall, result: Any) -> bytes:
        return self._write_tool_message(call.id, result if isinstance(result, str) else to_json(result).decode())

    def _write_call_error(self, error: Error, open_call: SentCall | None) -> bytes:
        assert error.call_id is not None
        written = b""
        if open_call is None:
            written = self._write_call_start(error.call_id, error.call.name if error.call else UNNAMED)
        if open_call is None or not (open_call.complete or open_call.has_deltas):
            arguments = error.call.arguments if error.call else {MALFORMED: error.raw} if error.raw else {}
            written += self._write_call_delta(error.call_id, to_json(arguments).decode())
        if open_call is None or not open_call.complete:
            written += encode_part("TOOL_CALL_END", toolCallId=error.call_id)
        return written + self._write_tool_message(error.call_id, error.message)

    def _write_failure(self, failure: Error) -> bytes:
        return encode_part("RUN_ERROR", message=failure.message, code=failure.code.value, usage=self._usage_field())

    def _write_end(self, done: Done) -> bytes:
        if done.reason == "cancelled" and not self._is_current:
            return encode_part("RUN_ERROR", message="The run was cancelled.", code="cancelled")
        outcome: dict[str, Any] | None = None
        if done.reason == "cancelled":
            outcome = {"type": "cancelled"}
        elif done.reason in COMPLETE and done.pending:
            unapproved = [call.id for call in done.pending if call.id in {*self._approval_requests} - {*done.client}]
            interrupts = [{"id": call_id, "reason": "tool_approval", "toolCallId": call_id} for call_id in unapproved]
            if interrupts:
                outcome = {"type": "interrupt", "interrupts": interrupts}
            elif self._is_current:
                outcome = {"type": "success", "pendingToolCallIds": [call.id for call in done.pending]}
        return encode_part(
            "RUN_FINISHED",
            threadId=self._thread_id or self._run_id,
            runId=self._run_id,
            result=present(reason=done.reason, finishReason=done.finish_reason, conversationId=done.conversation_id),
            outcome=outcome,
            usage=self._usage_field(),
        )

    def _write_tool_message(self, call_id: str, content: str) -> bytes:
        """Return the tool message with the result or the error of a call.

        The protocol has no separate event for the error of a call.
        """
        if call_id in self._known_results:
            return b""
        return encode_part(
            "TOOL_CALL_RESULT", messageId=self._new_id(), toolCallId=call_id, content=content, role="tool"
        )

    def _usage_field(self) -> list[dict[str, Any]] | None:
        usage = self._usage
        if usage is None or not self._is_current:
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
        self._message_count += 1
        return f"{self._message_prefix}-{self._message_count}"
