"""Writes the UI message stream of the AI SDK, protocol v1, for its major versions 5, 6 and 7. Sans-IO.

The client, `useChat`, is strict. The stream fails on a part of an unknown type, a delta without a start, an output of
an unknown call, and a field that is null. Only an output may be null. A part `error` also ends the stream: the client
reads nothing after it. So all open parts are closed before an `error`. A part that was added in a later version is not
sent to earlier versions.

The client shows a call as a tool part with a state. The state is `input-streaming` when the name of the call is known,
and `input-available` when the call is complete. Then the state is `output-available`, `output-error`, or
`output-denied` after a denied approval. If the client must run the call, the last state is `input-available`: the
client answers the call with `addToolOutput` and sends another request. If the call needs an approval, the state is
`approval-requested`, and the id of the approval is the id of the call. A call that will not run ends as `output-error`,
because providers refuse a history with unanswered calls.

Clients look only at the calls after the last `start-step`. They send the next request when all these calls are
answered. If a run continues a message with calls, `start-step` is sent only before the first new part. Until then,
clients still see the old calls, whose results come first. If a limit, a tool or a user ends a run after its calls, an
empty step follows. Otherwise, clients would send the next request, and the run would continue.

The signature of a part is sent in `providerMetadata`, in the form that the AI SDK's provider packages use.

Source: the packages `ai` 5.0.277, 6.0.326 and 7.0.173 (`ui-message-chunks`, `process-ui-message-stream`), and the page
"Stream Protocols" of its documentation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from streamtools.calls import ToolCall
from streamtools.errors import Code, check_word
from streamtools.events import COMPLETE, Call, Done, Error, UIEvent, Usage
from streamtools.outputs.front_end import UNNAMED, Channel, FrontEndEncoder, SentCall, Signature
from streamtools.outputs.sse import DONE, EVENT_STREAM_HEADERS, encode_json, encode_part, present

Target: TypeAlias = Literal[5, 6, 7]

_FINISH_REASONS = {
    reason: reason.replace("_", "-") for reason in ("stop", "tool_calls", "length", "content_filter", "error")
}
"""Maps finish reasons to the finish reasons of the AI SDK. Other reasons become `other`. The reason `interrupted` of
version 7 is not used, because a stream that was interrupted ends with an error."""


class AISDKEncoder(FrontEndEncoder):
    """Writes the AI SDK's UI message stream, which `useChat` reads.

    `target` is the major version of the npm package `ai` in the front end: 5, 6 or 7.

    `message_id` is the id of the message. If it is None, the client generates an id. Pass an id if the run may be
    resumed, so that all readers get the same id, or if the server stores messages. If the last message of the request
    is from the assistant, pass its id, because the answer continues that message. Otherwise pass a new id, such as the
    id of the run.

    `metadata` is sent as metadata of the message, for example the name of the model. When the model reports the tokens
    of the run, the field `usage` is added to the metadata.

    `dynamic` selects the type of the parts for calls: `dynamic-tool`, which works for every tool, or `tool-NAME`, for a
    front end with a type for each tool. Pass True or False for all tools, or the names of the dynamic tools.

    The progress of a tool is sent as a part `data-tool-progress`, and each part of a typed answer as a part
    `data-partial`. If another process or another model continues the answer, a part `data-reconnecting` or
    `data-failed-over` comes before the rest. `onData` receives these parts, and the message does not keep them.

    `known_calls` is for a run that resumes another run: the ids of calls that are already in the message. A client that
    reconnects to such a run must receive the complete message again. For this, pass the events of the earlier runs as
    `before`; they are sent first. `known_calls` is then ignored. Raises ValueError for a value that is not allowed.
    """

    headers: Mapping[str, str] = {**EVENT_STREAM_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}

    def __init__(
        self,
        target: Target = 7,
        *,
        message_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        dynamic: bool | Collection[str] = True,
        known_calls: Collection[str] = (),
        before: Iterable[UIEvent] = (),
    ) -> None:
        self._before = [*before]
        super().__init__(() if self._before else known_calls)
        check_word("target", target, get_args(Target))
        self._target = target
        self._message_id = message_id
        self._metadata = dict(metadata or {})
        self._dynamic = {dynamic} if isinstance(dynamic, str) else dynamic
        self._step_is_due = False  # a step has started, but `start-step` has not been sent
        self._step_has_calls = bool(known_calls)  # whether the last step that the client shows has calls

    def _write_start(self, run_id: str | None) -> bytes:
        written = [encode_part("start", messageId=self._message_id, messageMetadata=self._metadata or None)]
        before, self._before = self._before, []
        calls = list[str]()
        for event in before:
            if isinstance(event, Call):
                calls.append(event.call.id)
            if not isinstance(event, Done):
                written.append(self.encode(event))
                continue
            written.append(self._end_run(event))
            self._known_calls.update(calls)  # to the next run
            self._usage = self._failure = self._step_finish = None
        self._known_calls.update(calls)
        return b"".join(written)

    def _write_step_start(self, step: int) -> bytes:
        self._step_is_due = True
        return b"" if self._known_calls else self._open_step()

    def _write_step_end(self, step: int) -> bytes:
        is_open, self._step_is_due = not self._step_is_due, False
        return encode_part("finish-step") if is_open else b""

    def _open_step(self) -> bytes:
        """Return `start-step` if this step has started and the part was not sent, else `b""`."""
        is_due, self._step_is_due = self._step_is_due, False
        self._step_has_calls = self._step_has_calls and not is_due
        return encode_part("start-step") if is_due else b""

    def _end_run(self, done: Done | None) -> bytes:
        """Add an empty step if the run was ended early after calls. Else the client would send the next request."""
        written = super()._end_run(done)
        if done is None or done.reason in (*COMPLETE, "failed") or not self._step_has_calls:
            return written
        return written + encode_part("start-step") + encode_part("finish-step")

    def _write_block_start(self, channel: Channel, number: int) -> bytes:
        name = f"{channel}-{number}"
        self._delta_prefix = b'data: {"type":"%b-delta","id":"%b","delta":' % (channel.encode(), name.encode())
        return self._open_step() + encode_part(f"{channel}-start", id=name)

    def _write_block_end(self, channel: Channel, number: int, signature: Signature | None) -> bytes:
        metadata = signature.as_metadata() if signature else None
        return encode_part(f"{channel}-end", id=f"{channel}-{number}", providerMetadata=metadata)

    def _write_call_start(self, call_id: str, name: str) -> bytes:
        opened, self._step_has_calls = self._open_step(), True
        return opened + encode_part(
            "tool-input-start", toolCallId=call_id, toolName=name, dynamic=self._is_dynamic(name)
        )

    def _write_call_delta(self, call_id: str, text: str) -> bytes:
        return encode_part("tool-input-delta", toolCallId=call_id, inputTextDelta=text)

    def _write_call(self, call: ToolCall, open_call: SentCall, signature: Signature | None) -> bytes:
        return encode_part(
            "tool-input-available",
            toolCallId=call.id,
            toolName=open_call.name,
            input=call.arguments,
            dynamic=self._is_dynamic(open_call.name),
            providerMetadata=signature.as_metadata() if signature else None,
        )

    def _write_approval_request(self, call: ToolCall) -> bytes:
        if self._target < 6:  # version 5 has no approvals
            return b""
        return encode_part("tool-approval-request", approvalId=call.id, toolCallId=call.id)

    def _write_approval(self, call: ToolCall) -> bytes:
        return self._write_approval_response(call.id, approved=True)

    def _write_approval_response(self, call_id: str, *, approved: bool, reason: str | None = None) -> bytes:
        """Return the answer to an approval request of this stream. Only version 7 has a part for it."""
        if self._target < 7:
            return b""
        return encode_part("tool-approval-response", approvalId=call_id, approved=approved, reason=reason)

    def _write_file(self, media_type: str, url: str) -> bytes:
        opened = self._begin() + self._end_block() + self._open_step()
        return opened + encode_part("file", url=url, mediaType=media_type)

    def _write_notice(self, name: str, data: dict[str, Any], id: str | None = None) -> bytes:
        return encode_part(f"data-{name}", id=id, data=data, transient=True)

    def _write_result(self, call: ToolCall, result: Any) -> bytes:
        """Return the output of a call, which may be null. Version 5 finds the call only if `dynamic` is sent again."""
        part = {"type": "tool-output-available", "toolCallId": call.id, "output": result}
        return encode_json(part | present(dynamic=self._is_dynamic(call.name)))

    def _write_call_error(self, error: Error, open_call: SentCall | None) -> bytes:
        if open_call is not None and open_call.complete:
            if error.code is Code.TOOL_DENIED and not open_call.allowed and self._target > 5:
                if open_call.id in self._approval_requests:
                    reason = error.message.partition(" was denied: ")[2] or None  # see `_apply` in tools/runner.py
                    answered = self._write_approval_response(open_call.id, approved=False, reason=reason)
                    return answered + encode_part("tool-output-denied", toolCallId=open_call.id)
                if open_call.id in self._known_calls:  # the client denied it after the earlier run
                    return encode_part("tool-output-denied", toolCallId=open_call.id)
            dynamic = self._is_dynamic(open_call.name)
            return encode_part("tool-output-error", toolCallId=open_call.id, errorText=error.message, dynamic=dynamic)
        name = open_call.name if open_call else error.call.name if error.call else None
        opened, self._step_has_calls = self._open_step(), True
        return opened + encode_part(
            "tool-input-error",
            toolCallId=error.call_id,
            toolName=name or UNNAMED,
            input=error.call.arguments if error.call else error.raw or "",
            errorText=error.message,
            dynamic=self._is_dynamic(name),
        )

    def _write_usage(self, usage: Usage) -> bytes:
        return encode_part("message-metadata", messageMetadata={"usage": self._usage_fields(usage)})

    def _write_failure(self, failure: Error) -> bytes:
        return encode_part("error", errorText=failure.message) + encode_part("finish", finishReason="error") + DONE

    def _write_end(self, done: Done) -> bytes:
        if done.reason == "cancelled":
            return encode_part("abort", reason="cancelled") + DONE
        stopped = done.reason == "stopped"
        reason = _FINISH_REASONS.get((self._step_finish if stopped else done.finish_reason) or "", "other")
        if done.pending and done.reason in COMPLETE:
            reason = "tool-calls"
        metadata = present(conversationId=done.conversation_id, stoppedBy=done.finish_reason if stopped else None)
        return encode_part("finish", finishReason=reason, messageMetadata=metadata or None) + DONE

    def _is_dynamic(self, name: str | None) -> bool | None:
        """Return the field `dynamic`: True for a `dynamic-tool`, and None, to omit the field, for a `tool-NAME`."""
        dynamic = self._dynamic if isinstance(self._dynamic, bool) else name in self._dynamic
        return True if dynamic or name is None else None

    def _usage_fields(self, usage: Usage) -> dict[str, Any]:
        """Return the tokens as the AI SDK's `LanguageModelUsage`."""
        total = present(inputTokens=usage.input, outputTokens=usage.output, totalTokens=usage.total)
        if self._target < 6:
            return total | present(cachedInputTokens=usage.cache_read, reasoningTokens=usage.reasoning)
        cache = present(cacheReadTokens=usage.cache_read, cacheWriteTokens=usage.cache_write)
        reasoning = present(reasoningTokens=usage.reasoning)
        return total | present(inputTokenDetails=cache or None, outputTokenDetails=reasoning or None)
