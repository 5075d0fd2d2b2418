"""The UI message stream of the AI SDK, which `useChat` reads: protocol v1, for the major versions 5, 6 and 7. Sans-IO.

Its clients read strictly. A part of a type that they do not know, a null, a delta of what has not been started or an
output of a call that was not announced, each ends the stream with an error; so does a part `error`, behind which
nothing is read. So parts are closed before it, and what only a later version knows is not sent to an earlier one.

A call of ours becomes a tool part: `input-streaming` from its name on, `input-available` when it is complete, then
`output-available` or `output-error`. Calls that are left for somebody else to run stay `input-available`: the client
answers them (`addToolOutput`) and asks again; those that somebody has to approve first are `approval-requested`, and
the id of the approval is the call's. Calls that nobody will run end as `output-error`, since a history with
unanswered calls is one that no provider takes.

Clients look at the calls behind the last `start-step` to find out whether all are answered. So a run that goes on in a
message which holds calls already begins a step only when it has something new to say in it.

Source: the packages `ai` 5.0.277, 6.0.326 and 7.0.173 (`ui-message-chunks`, `process-ui-message-stream`), and the page
"Stream Protocols" of its documentation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

from streamtools.calls import ToolCall
from streamtools.events import Done, Error, Usage
from streamtools.outputs.encoder import EVENT_STREAM_HEADERS
from streamtools.outputs.moves import UNNAMED, Channel, KnownCall
from streamtools.outputs.paired import PairedEncoder
from streamtools.outputs.sse import DONE, encode_json, present

Target: TypeAlias = Literal[5, 6, 7]

_FINISH = {
    "stop": "stop",
    "tool_calls": "tool-calls",
    "length": "length",
    "content_filter": "content-filter",
    "error": "error",
}
"""Its `interrupted`, of version 7, is a stream without an end, which is an error here; all the rest is `other`."""


class AISDKEncoder(PairedEncoder):
    """Writes the parts of one message. The arguments are those of `outputs.ai_sdk`."""

    headers: Mapping[str, str] = {**EVENT_STREAM_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}

    def __init__(
        self,
        target: Target,
        *,
        message_id: str | None,
        dynamic: bool | Collection[str],
        progress: Literal["data", "preliminary"],
        metadata: Mapping[str, Any] | None,
        usage: bool,
        known_calls: Collection[str],
    ) -> None:
        super().__init__(known_calls)
        if target not in (5, 6, 7):
            raise ValueError(f"target is a major version of the AI SDK, 5, 6 or 7, and not {target!r}")
        if progress not in ("data", "preliminary"):
            raise ValueError(f"progress is 'data' or 'preliminary', not {progress!r}")
        self._target = target
        self._message_id = message_id
        self._dynamic = {dynamic} if isinstance(dynamic, str) else dynamic
        self._preliminary = progress == "preliminary"
        self._metadata = dict(metadata) if metadata else None
        self._tells_usage = usage
        self._step_is_due = False  # it has begun, and the reader has not been told

    def _write_start(self, run_id: str | None) -> bytes:
        return _part("start", messageId=self._message_id, messageMetadata=self._metadata)

    def _write_step_start(self, step: int) -> bytes:
        self._step_is_due = True
        return b"" if self._known else self._tell_step()

    def _write_step_end(self, step: int) -> bytes:
        told, self._step_is_due = not self._step_is_due, False
        return _part("finish-step") if told else b""

    def _tell_step(self) -> bytes:
        due, self._step_is_due = self._step_is_due, False
        return _part("start-step") if due else b""

    def _write_stretch_start(self, channel: Channel, number: int) -> bytes:
        name = f"{channel}-{number}"
        self._delta_head = b'data: {"type":"%b-delta","id":"%b","delta":' % (channel.encode(), name.encode())
        return self._tell_step() + _part(f"{channel}-start", id=name)

    def _write_stretch_end(self, channel: Channel, number: int) -> bytes:
        return _part(f"{channel}-end", id=f"{channel}-{number}")

    def _write_call_start(self, call_id: str, name: str) -> bytes:
        started = _part("tool-input-start", toolCallId=call_id, toolName=name, dynamic=self._is_dynamic(name))
        return self._tell_step() + started

    def _write_call_delta(self, call_id: str, text: str) -> bytes:
        return _part("tool-input-delta", toolCallId=call_id, inputTextDelta=text)

    def _write_call(self, call: ToolCall, known: KnownCall) -> bytes:
        return _part(
            "tool-input-available",
            toolCallId=call.id,
            toolName=known.name,
            input=call.arguments,
            dynamic=self._is_dynamic(known.name),
        )

    def _write_question(self, call: ToolCall) -> bytes:
        if self._target < 6:  # it knows none
            return b""
        return _part("tool-approval-request", approvalId=call.id, toolCallId=call.id)

    def _write_progress(self, known: KnownCall, data: Any) -> bytes:
        if self._preliminary:
            return self._output(known.id, known.name, output=data, preliminary=True)
        return _part("data-tool-progress", id=known.id, data={"toolCallId": known.id, "progress": data})

    def _write_result(self, call: ToolCall, result: Any) -> bytes:
        return self._output(call.id, call.name, output=result)

    def _write_refusal(self, error: Error, known: KnownCall | None) -> bytes:
        if known is not None and known.whole:
            dynamic = self._is_dynamic(known.name)
            return _part("tool-output-error", toolCallId=known.id, errorText=error.message, dynamic=dynamic)
        name = known.name if known else error.call.name if error.call else None
        return self._tell_step() + _part(
            "tool-input-error",
            toolCallId=error.call_id,
            toolName=name or UNNAMED,
            input=error.call.arguments if error.call else error.raw or "",
            errorText=error.message,
            dynamic=self._is_dynamic(name),
        )

    def _write_usage(self, usage: Usage) -> bytes:
        return _part("message-metadata", messageMetadata={"usage": self._tokens(usage)}) if self._tells_usage else b""

    def _write_failure(self, failure: Error) -> bytes:
        return _part("error", errorText=failure.message) + _part("finish", finishReason="error") + DONE

    def _write_end(self, done: Done) -> bytes:
        if done.reason == "cancelled":
            return _part("abort", reason="cancelled") + DONE
        stopped = done.reason == "stopped"
        reason = _FINISH.get((self._step_finish if stopped else done.finish_reason) or "", "other")
        if done.pending and done.reason == "finished":
            reason = "tool-calls"
        metadata = present(conversationId=done.conversation_id, stoppedBy=done.finish_reason if stopped else None)
        return _part("finish", finishReason=reason, messageMetadata=metadata or None) + DONE

    def _output(self, call_id: str, name: str, **members: Any) -> bytes:
        """Return an output, which may be null; version 5 finds its call only if it says again that it is dynamic."""
        part = {"type": "tool-output-available", "toolCallId": call_id, **members}
        return encode_json(part | present(dynamic=self._is_dynamic(name)))

    def _is_dynamic(self, name: str | None) -> bool | None:
        """Return True for a call whose part is a `dynamic-tool`, and None, which is not sent, for `tool-NAME`."""
        dynamic = self._dynamic if isinstance(self._dynamic, bool) else name in self._dynamic
        return True if dynamic or name is None else None

    def _tokens(self, usage: Usage) -> dict[str, Any]:
        """Return the tokens in the words of the AI SDK's `LanguageModelUsage`."""
        total = present(inputTokens=usage.input, outputTokens=usage.output, totalTokens=usage.total)
        if self._target < 6:
            return total | present(cachedInputTokens=usage.cache_read, reasoningTokens=usage.reasoning)
        read = present(cacheReadTokens=usage.cache_read, cacheWriteTokens=usage.cache_write)
        written = present(reasoningTokens=usage.reasoning)
        return total | present(inputTokenDetails=read or None, outputTokenDetails=written or None)


def _part(type: str, **members: Any) -> bytes:
    """Return one part, without those of its members that are None."""
    return encode_json({"type": type} | present(**members))
