"""The UI message stream of the AI SDK, which `useChat` reads: protocol v1, for the major versions 5, 6 and 7. Sans-IO.

Its clients read strictly. A part of a type that they do not know, a null, a delta of what has not been started or an
output of a call that was not announced, each ends the stream with an error; so does a part `error`, behind which
nothing is read. So parts are closed before it, and what only a later version knows is not sent to an earlier one.

A call of ours becomes a tool part: `input-streaming` from its name on, `input-available` when it is complete, then
`output-available`, `output-error` or, where its approval was asked for and refused, `output-denied`. Calls that are
left for somebody else to run stay `input-available`: the client answers them (`addToolOutput`) and asks again; those
that somebody has to approve first are `approval-requested`, and the id of the approval is the call's. Calls that nobody
will run end as `output-error`, since a history with unanswered calls is one that no provider takes.

Clients look at the calls behind the last `start-step` to find out whether all are answered. So a run that goes on in a
message which holds calls already begins a step only when it has something new to say in it.

What signs a part, or encrypts it, is the `providerMetadata` of that part, as the AI SDK's own providers write it.

Source: the packages `ai` 5.0.277, 6.0.326 and 7.0.173 (`ui-message-chunks`, `process-ui-message-stream`), and the page
"Stream Protocols" of its documentation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from streamtools.calls import ToolCall
from streamtools.errors import Code, check_word
from streamtools.events import Call, Done, Error, Partial, Start, UIEvent, Usage
from streamtools.outputs.encoder import DONE, EVENT_STREAM_HEADERS, encode_json, encode_part, present
from streamtools.outputs.paired import UNNAMED, Channel, KnownCall, PairedEncoder
from streamtools.outputs.protected import Protected, of_call

Target: TypeAlias = Literal[5, 6, 7]

_FINISH = {each: each.replace("_", "-") for each in ("stop", "tool_calls", "length", "content_filter", "error")}
"""Its `interrupted`, of version 7, is a stream without an end, which is an error here; all the rest is `other`."""


class AISDKEncoder(PairedEncoder):
    """Writes the AI SDK's UI message stream, which `useChat` reads.

    `target` is the major version of the npm package `ai` that the front end uses: 5, 6 or 7. `message_id` is the id of
    the message that is made; without it the client makes one up. A run that may be resumed needs it, the same for all
    its readers, and so does a server that keeps messages: the id of the request's last message if that is the
    assistant's, which this answer goes on with, and else one of your own, the run's id for instance. `dynamic`: calls
    are parts of the type `dynamic-tool`, which fits any tool; with False, or names that a call's is not among,
    `tool-NAME`, for a front end that has types for it. `progress`: what a tool reports while it works is a part
    `data-tool-progress` for `onData`, of which nothing stays in the message, or a `"preliminary"` output of the call,
    for tools whose progress has the form of their result. `metadata` is that of the message; `usage=False` keeps the
    tokens of the run out of it. `known_calls` are the ids of calls that the message holds already, of a run that
    resumes another. A client that comes back into such a run makes the whole message anew: `before` are the events of
    the runs that it began with, which are told first. Raises ValueError for a value that is not allowed.
    """

    headers: Mapping[str, str] = {**EVENT_STREAM_HEADERS, "x-vercel-ai-ui-message-stream": "v1"}

    def __init__(
        self,
        target: Target = 7,
        *,
        message_id: str | None = None,
        dynamic: bool | Collection[str] = True,
        progress: Literal["data", "preliminary"] = "data",
        metadata: Mapping[str, Any] | None = None,
        usage: bool = True,
        known_calls: Collection[str] = (),
        before: Iterable[UIEvent] = (),
    ) -> None:
        self._before = [each for each in before if not isinstance(each, Start | Done)]
        super().__init__(() if self._before else known_calls)
        if target not in (5, 6, 7):
            raise ValueError(f"target is a major version of the AI SDK, 5, 6 or 7, and not {target!r}")
        check_word("progress", progress, ("data", "preliminary"))
        self._target = target
        self._message_id = message_id
        self._dynamic = {dynamic} if isinstance(dynamic, str) else dynamic
        self._preliminary = progress == "preliminary"
        self._metadata = dict(metadata) if metadata else None
        self._sends_usage = usage
        self._pending_step = False  # it has begun, and no part says so

    def _write_start(self, run_id: str | None) -> bytes:
        started = encode_part("start", messageId=self._message_id, messageMetadata=self._metadata)
        before, self._before = self._before, []
        replayed = [self.encode(each) for each in before]
        self._known.update(each.call.id for each in before if isinstance(each, Call))
        return b"".join([started, *replayed])

    def _write_step_start(self, step: int) -> bytes:
        self._pending_step = True
        return b"" if self._known else self._open_step()

    def _write_step_end(self, step: int) -> bytes:
        is_open, self._pending_step = not self._pending_step, False
        return encode_part("finish-step") if is_open else b""

    def _open_step(self) -> bytes:
        is_due, self._pending_step = self._pending_step, False
        return encode_part("start-step") if is_due else b""

    def _write_block_start(self, channel: Channel, number: int) -> bytes:
        name = f"{channel}-{number}"
        self._delta_head = b'data: {"type":"%b-delta","id":"%b","delta":' % (channel.encode(), name.encode())
        return self._open_step() + encode_part(f"{channel}-start", id=name)

    def _write_block_end(self, channel: Channel, number: int, kept: Protected | None) -> bytes:
        metadata = kept.as_metadata() if kept else None
        return encode_part(f"{channel}-end", id=f"{channel}-{number}", providerMetadata=metadata)

    def _write_call_start(self, call_id: str, name: str) -> bytes:
        started = encode_part("tool-input-start", toolCallId=call_id, toolName=name, dynamic=self._is_dynamic(name))
        return self._open_step() + started

    def _write_call_delta(self, call_id: str, text: str) -> bytes:
        return encode_part("tool-input-delta", toolCallId=call_id, inputTextDelta=text)

    def _write_call(self, call: ToolCall, known: KnownCall) -> bytes:
        kept = of_call(call, self._format)
        return encode_part(
            "tool-input-available",
            toolCallId=call.id,
            toolName=known.name,
            input=call.arguments,
            dynamic=self._is_dynamic(known.name),
            providerMetadata=kept.as_metadata() if kept else None,
        )

    def _write_question(self, call: ToolCall) -> bytes:
        if self._target < 6:  # it knows none
            return b""
        return encode_part("tool-approval-request", approvalId=call.id, toolCallId=call.id)

    def _write_approval(self, call: ToolCall) -> bytes:
        return self._respond(call.id, approved=True)

    def _respond(self, call_id: str, *, approved: bool, reason: str | None = None) -> bytes:
        """Return how a question of this stream was answered, which version 6 knows only from itself."""
        if self._target < 7:
            return b""
        return encode_part("tool-approval-response", approvalId=call_id, approved=approved, reason=reason)

    def _write_file(self, kind: str, url: str) -> bytes:
        opened = self._begin() + self._end_block() + self._open_step()
        return opened + encode_part("file", url=url, mediaType=kind)

    def _write_partial(self, partial: Partial) -> bytes:
        data = {"path": partial.path, "value": partial.value, "complete": partial.complete}
        return encode_part("data-partial", data=data, transient=True)  # for `onData`; the message holds the text

    def _write_progress(self, known: KnownCall, data: Any) -> bytes:
        if self._preliminary:
            return self._output(known.id, known.name, output=data, preliminary=True)
        reported = {"toolCallId": known.id, "progress": data}
        return encode_part("data-tool-progress", id=known.id, data=reported, transient=True)

    def _write_result(self, call: ToolCall, result: Any) -> bytes:
        return self._output(call.id, call.name, output=result)

    def _write_refusal(self, error: Error, known: KnownCall | None) -> bytes:
        if known is not None and known.whole:
            if error.code is Code.TOOL_DENIED and not known.begun and self._target > 5:
                if known.id in self._questions:
                    answered = self._respond(known.id, approved=False, reason=error.message)
                    return answered + encode_part("tool-output-denied", toolCallId=known.id)
                if known.id in self._known:  # the client was asked at the end of the run before, and has said so
                    return encode_part("tool-output-denied", toolCallId=known.id)
            dynamic = self._is_dynamic(known.name)
            return encode_part("tool-output-error", toolCallId=known.id, errorText=error.message, dynamic=dynamic)
        name = known.name if known else error.call.name if error.call else None
        return self._open_step() + encode_part(
            "tool-input-error",
            toolCallId=error.call_id,
            toolName=name or UNNAMED,
            input=error.call.arguments if error.call else error.raw or "",
            errorText=error.message,
            dynamic=self._is_dynamic(name),
        )

    def _write_usage(self, usage: Usage) -> bytes:
        if not self._sends_usage:
            return b""
        return encode_part("message-metadata", messageMetadata={"usage": self._tokens(usage)})

    def _write_failure(self, failure: Error) -> bytes:
        return encode_part("error", errorText=failure.message) + encode_part("finish", finishReason="error") + DONE

    def _write_end(self, done: Done) -> bytes:
        if done.reason == "cancelled":
            return encode_part("abort", reason="cancelled") + DONE
        stopped = done.reason == "stopped"
        reason = _FINISH.get((self._step_finish if stopped else done.finish_reason) or "", "other")
        if done.pending and done.reason == "finished":
            reason = "tool-calls"
        metadata = present(conversationId=done.conversation_id, stoppedBy=done.finish_reason if stopped else None)
        return encode_part("finish", finishReason=reason, messageMetadata=metadata or None) + DONE

    def _output(self, call_id: str, name: str, **members: Any) -> bytes:
        """Return an output, which may be null; version 5 finds its call only if it says again that it is dynamic."""
        part = {"type": "tool-output-available", "toolCallId": call_id, **members}
        return encode_json(part | present(dynamic=self._is_dynamic(name)))

    def _is_dynamic(self, name: str | None) -> bool | None:
        """Return True for a call whose part is a `dynamic-tool`, and None, which is not sent, for `tool-NAME`."""
        dynamic = self._dynamic if isinstance(self._dynamic, bool) else name in self._dynamic
        return True if dynamic or name is None else None

    def _tokens(self, usage: Usage) -> dict[str, Any]:
        """Return the tokens in the terms of the AI SDK's `LanguageModelUsage`."""
        total = present(inputTokens=usage.input, outputTokens=usage.output, totalTokens=usage.total)
        if self._target < 6:
            return total | present(cachedInputTokens=usage.cache_read, reasoningTokens=usage.reasoning)
        read = present(cacheReadTokens=usage.cache_read, cacheWriteTokens=usage.cache_write)
        written = present(reasoningTokens=usage.reasoning)
        return total | present(inputTokenDetails=read or None, outputTokenDetails=written or None)
