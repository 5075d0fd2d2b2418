"""Clients of the AI SDK and of AG-UI, which refuse invalid events as their packages do. They need no Node.

AI SDK: `ui-message-chunks` and `process-ui-message-stream` of `ai` 5, 6 and 7. AG-UI: `verify` of `@ag-ui/client`
1.0.0, and the models of `ag-ui-protocol`. These clients also refuse events that the packages accept but that interfaces
show badly, such as a text or a call that never ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from streamtools.events import Reasoning, Text, UIEvent
from streamtools.json_values import well_formed

Part = dict[str, Any]

_PARTS: dict[str, tuple[set[str], set[str]]] = {  # the required and the optional fields of each type
    "start": (set(), {"messageId", "messageMetadata"}),
    "start-step": (set(), set()),
    "finish-step": (set(), set()),
    "text-start": ({"id"}, set()),
    "text-delta": ({"id", "delta"}, set()),
    "text-end": ({"id"}, {"providerMetadata"}),
    "reasoning-start": ({"id"}, set()),
    "reasoning-delta": ({"id", "delta"}, set()),
    "reasoning-end": ({"id"}, {"providerMetadata"}),
    "tool-input-start": ({"toolCallId", "toolName"}, {"dynamic"}),
    "tool-input-delta": ({"toolCallId", "inputTextDelta"}, set()),
    "tool-input-available": ({"toolCallId", "toolName", "input"}, {"dynamic", "providerMetadata"}),
    "tool-input-error": ({"toolCallId", "toolName", "input", "errorText"}, {"dynamic"}),
    "tool-approval-request": ({"approvalId", "toolCallId"}, set()),
    "tool-approval-response": ({"approvalId", "approved"}, {"reason"}),
    "tool-output-denied": ({"toolCallId"}, set()),
    "file": ({"url", "mediaType"}, set()),
    "tool-output-available": ({"toolCallId", "output"}, {"dynamic", "preliminary"}),
    "tool-output-error": ({"toolCallId", "errorText"}, {"dynamic"}),
    "data-tool-progress": ({"id", "data", "transient"}, set()),
    **dict.fromkeys(("data-partial", "data-reconnecting", "data-failed-over"), ({"data", "transient"}, set())),
    "message-metadata": ({"messageMetadata"}, set()),
    "error": ({"errorText"}, set()),
    "abort": (set(), {"reason"}),
    "finish": ({"finishReason"}, {"messageMetadata"}),
}
_ANY_VALUE = {"input", "output", "data"}
_REASONS = {"stop", "length", "content-filter", "tool-calls", "error", "other"}

_EVENTS: dict[str, tuple[set[str], set[str]]] = {
    "RUN_STARTED": ({"threadId", "runId", "protocolVersion"}, set()),
    "RUN_FINISHED": ({"threadId", "runId", "result"}, {"outcome", "usage"}),
    "RUN_ERROR": ({"message", "code"}, {"usage"}),
    "STEP_STARTED": ({"stepName"}, set()),
    "STEP_FINISHED": ({"stepName"}, set()),
    "TEXT_MESSAGE_START": ({"messageId", "role"}, set()),
    "TEXT_MESSAGE_CONTENT": ({"messageId", "delta"}, set()),
    "TEXT_MESSAGE_END": ({"messageId"}, set()),
    "REASONING_START": ({"messageId"}, set()),
    "REASONING_MESSAGE_START": ({"messageId", "role"}, set()),
    "REASONING_MESSAGE_CONTENT": ({"messageId", "delta"}, set()),
    "REASONING_MESSAGE_END": ({"messageId"}, set()),
    "REASONING_END": ({"messageId"}, set()),
    "REASONING_ENCRYPTED_VALUE": ({"subtype", "entityId", "encryptedValue"}, set()),
    "TOOL_CALL_START": ({"toolCallId", "toolCallName", "parentMessageId"}, set()),
    "TOOL_CALL_ARGS": ({"toolCallId", "delta"}, set()),
    "TOOL_CALL_END": ({"toolCallId"}, set()),
    "TOOL_CALL_RESULT": ({"messageId", "toolCallId", "content", "role"}, set()),
    "CUSTOM": ({"name", "value"}, set()),
}
_PAIRS = {  # the events that open, continue and close a part, by the member with its id
    "TEXT_MESSAGE_START": ("messageId", ("TEXT_MESSAGE_CONTENT",), "TEXT_MESSAGE_END"),
    "REASONING_START": ("messageId", (), "REASONING_END"),
    "REASONING_MESSAGE_START": ("messageId", ("REASONING_MESSAGE_CONTENT",), "REASONING_MESSAGE_END"),
    "TOOL_CALL_START": ("toolCallId", ("TOOL_CALL_ARGS",), "TOOL_CALL_END"),
    "STEP_STARTED": ("stepName", (), "STEP_FINISHED"),
}


def read_body(body: bytes, *, done: bool) -> list[Part]:
    """Return the objects in a body of server-sent events. With `done`, the body must end with `[DONE]`."""
    *frames, rest = body.decode().split("\n\n")
    assert rest == "", f"the body ends in the middle of {rest!r}"
    assert all(frame.startswith("data: ") and "\n" not in frame and "\r" not in frame for frame in frames), frames
    data = [frame.removeprefix("data: ") for frame in frames]
    assert (data[-1:] == ["[DONE]"]) == done, data[-1:]
    return [json.loads(each) for each in (data[:-1] if done else data)]


def check_ai_sdk(parts: Sequence[Part], *, target: int = 7) -> None:
    """Raise AssertionError for events that a client of this version would refuse or show incorrectly."""
    assert parts[0]["type"] == "start", parts[0]
    open_step = failed = False
    stretches: set[str] = set()  # open texts and reasoning
    used: set[str] = set()
    calls: dict[str, str] = {}
    asked: set[str] = set()
    dynamic: set[str] = set()
    for at, part in enumerate(parts):
        kind = part["type"]
        _check_members(part, _PARTS, nulls=_ANY_VALUE)
        assert not failed or kind == "finish", f"{part} follows an error"
        family, _, move = kind.rpartition("-")
        call = part.get("toolCallId", "")
        if kind == "start":
            assert at == 0, "start comes once"
        elif kind in ("start-step", "finish-step"):
            assert open_step == (kind == "finish-step"), part
            assert not stretches, f"{stretches} are open at {part}"
            open_step = not open_step
        elif family in ("text", "reasoning"):
            name = part["id"]
            if move == "start":
                assert name not in used, f"{name} comes twice"
                used.add(name)
                stretches.add(name)
            else:
                assert name in stretches, f"{part} without its start"
                assert part.get("delta") != "", part
                stretches -= {name} if move == "end" else set()
        elif kind == "tool-input-start":
            assert call not in calls, part
            calls[call] = "streaming"
        elif kind == "tool-input-delta":
            assert calls[call] == "streaming", part
            assert part["inputTextDelta"], part
        elif kind in ("tool-input-available", "tool-input-error"):
            assert calls.get(call, "streaming") == "streaming", part
            dynamic |= {call} if part.get("dynamic") else set()
            calls[call] = "available" if kind == "tool-input-available" else "ended"
        elif kind == "tool-approval-request":
            assert target > 5, f"version 5 does not know {part}"
            assert calls[call] == "available", part
            asked.add(call)
        elif kind == "tool-approval-response":
            assert target > 6, f"version 6 does not know {part}"
            assert part["approvalId"] in asked, part
        elif kind == "tool-output-denied":
            assert target > 5, f"version 5 does not know {part}"
            assert call in asked, part
            assert calls[call] == "available", part
            calls[call] = "ended"
        elif kind == "file":
            assert not stretches, f"{stretches} are open at {part}"
        elif kind in ("tool-output-available", "tool-output-error"):
            assert part.get("dynamic", False) == (call in dynamic), f"version 5 does not find the call of {part}"
            assert calls[call] == "available", part
            calls[call] = "available" if part.get("preliminary") else "ended"
        elif kind == "message-metadata":
            words = (
                {"cachedInputTokens", "reasoningTokens"} if target > 5 else {"inputTokenDetails", "outputTokenDetails"}
            )
            assert not words & part["messageMetadata"]["usage"].keys(), f"{part} is of another version"
        elif kind == "data-tool-progress":
            assert calls[part["id"]] == "available", part
        elif kind in ("error", "abort", "finish"):
            assert not stretches, f"{stretches} are open at the end"
            assert not open_step, "a step is open at the end"
            assert "streaming" not in calls.values(), f"calls are open at the end: {calls}"
            failed = kind == "error"
            if kind == "finish":
                assert part["finishReason"] in _REASONS, part
    assert parts[-1]["type"] in ("finish", "abort"), parts[-1]
    left = "available" in calls.values()  # the client must run them
    assert not left or parts[-1].get("finishReason") == "tool-calls", f"calls are left: {calls}"


def check_ag_ui(events: Sequence[Part], *, current: bool) -> None:
    """Raise AssertionError for events that a client would refuse. `current` means that it declared version 1.0."""
    assert events[0]["type"] == "RUN_STARTED", events[0]
    assert events[-1]["type"] in ("RUN_FINISHED", "RUN_ERROR"), events[-1]
    opened: set[tuple[str, str]] = set()
    ids: set[str] = set()
    started: list[str] = []
    answered: list[str] = []
    closers = {closer: (opener, member) for opener, (member, _, closer) in _PAIRS.items()}
    inner = {each: (opener, member) for opener, (member, between, _) in _PAIRS.items() for each in between}
    for at, event in enumerate(events):
        kind = event["type"]
        _check_members(event, _EVENTS, nulls=set())
        assert (kind == "RUN_STARTED") == (at == 0), event
        assert (kind in ("RUN_FINISHED", "RUN_ERROR")) == (at == len(events) - 1), event
        if kind in _PAIRS:
            key = (kind, event[_PAIRS[kind][0]])
            assert key not in opened, f"{event} opens an open part"
            opened.add(key)
        elif kind in closers:
            opener, member = closers[kind]
            opened.remove((opener, event[member]))
        elif kind in inner:
            opener, member = inner[kind]
            assert (opener, event[member]) in opened, f"{event} without its start"
            assert event["delta"], event
        if kind in ("TEXT_MESSAGE_START", "REASONING_START", "TOOL_CALL_RESULT"):
            assert event["messageId"] not in ids, f"the id of {event} is taken"
            ids.add(event["messageId"])
        if kind == "TOOL_CALL_START":
            assert not {each for each in opened if each[0] == "TEXT_MESSAGE_START"}, "a text is open around a call"
            assert event["toolCallId"] not in started, event
            started.append(event["toolCallId"])
        if kind == "TOOL_CALL_RESULT":
            assert event["toolCallId"] in started, event
            assert event["toolCallId"] not in answered, event
            answered.append(event["toolCallId"])
        if not current:
            assert event.get("outcome", {}).get("type", "interrupt") == "interrupt", event
            assert "usage" not in event, event
    assert not opened, f"{opened} are open at the end"
    outcome = events[-1].get("outcome", {})
    asked = [each["toolCallId"] for each in outcome.get("interrupts", ())]
    assert {*asked} <= {*started} - {*answered}, events[-1]
    pending = outcome.get("pendingToolCallIds", [])
    if (current and not asked) or events[-1]["type"] == "RUN_ERROR":
        assert sorted(pending) == sorted(set(started) - set(answered)), f"{pending} are pending in {events}"


def keep_ai_sdk(body: bytes, message: Part) -> None:
    """Add the parts of a body to the assistant's message, as `process-ui-message-stream` of `ai` 6.0.326 does."""
    check_ai_sdk(read_body(body, done=True))
    open_parts: dict[str, Part] = {}
    calls: dict[str, Part] = {}
    for part in read_body(body, done=True):
        kind, _, move = part["type"].rpartition("-")
        if part["type"] == "start-step":
            message["parts"].append({"type": "step-start"})
        elif kind in ("text", "reasoning"):
            if move == "start":
                open_parts[part["id"]] = {"type": kind, "text": ""}
                message["parts"].append(open_parts[part["id"]])
            open_parts[part["id"]]["text"] += part.get("delta", "")
            if "providerMetadata" in part:
                open_parts[part["id"]]["providerMetadata"] = part["providerMetadata"]
        elif kind == "tool-input" and part["toolCallId"] not in calls:
            calls[part["toolCallId"]] = {"type": "dynamic-tool", "toolName": part["toolName"], **_call(part)}
            message["parts"].append(calls[part["toolCallId"]])
        elif kind in ("tool-input", "tool-output"):
            calls[part["toolCallId"]] |= _call(part)


def _call(part: Part) -> Part:
    states = {"tool-input-start": "input-streaming", "tool-input-delta": "input-streaming"}
    held: Part = {name: part[name] for name in ("toolCallId", "input", "output") if name in part}
    metadata = {"callProviderMetadata": part["providerMetadata"]} if "providerMetadata" in part else {}
    return {**held, **metadata, "state": states.get(part["type"], part["type"].removeprefix("tool-"))}


def keep_ag_ui(body: bytes, messages: list[Part]) -> None:
    """Add the events of a body to the messages, as `apply/default` of `@ag-ui/client` 1.0.0 does."""
    told = read_body(body, done=False)
    check_ag_ui(told, current=True)

    def find(id: str, **made: Any) -> Part:
        found = next((each for each in messages if each["id"] == id), None)
        if found is None:
            messages.append(found := {"id": id, **made})
        return found

    for each in told:
        match each["type"]:
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                find(each["messageId"], role=each["role"], content="")
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                find(each["messageId"])["content"] += each["delta"]
            case "TOOL_CALL_START":
                function = {"name": each["toolCallName"], "arguments": ""}
                call = {"id": each["toolCallId"], "type": "function", "function": function}
                find(each["parentMessageId"], role="assistant").setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                _calls(messages)[each["toolCallId"]]["function"]["arguments"] += each["delta"]
            case "TOOL_CALL_RESULT":
                find(each["messageId"], role="tool", toolCallId=each["toolCallId"], content=each["content"])
            case "REASONING_ENCRYPTED_VALUE":
                calls = _calls(messages)
                of_call = each["subtype"] == "tool-call"
                (calls[each["entityId"]] if of_call else find(each["entityId"]))["encryptedValue"] = each[
                    "encryptedValue"
                ]


def _calls(messages: list[Part]) -> dict[str, Part]:
    return {call["id"]: call for message in messages for call in message.get("toolCalls", ())}


def text_of(parts: Iterable[Part], kind: str) -> str:
    """Return the joined deltas of one type."""
    return "".join(part["delta"] for part in parts if part["type"] == kind)


def visible(text: str) -> str:
    """Return the visible characters, because white space alone is not sent."""
    return "".join(text.split())


def said(events: Iterable[UIEvent], kind: type[Text | Reasoning] = Text) -> str:
    """Return the visible text of a run, with U+FFFD for each lone surrogate."""
    return visible("".join(well_formed(each.text) for each in events if isinstance(each, kind)))


def _check_members(part: Part, table: dict[str, tuple[set[str], set[str]]], *, nulls: set[str]) -> None:
    needed, allowed = table[part["type"]]
    members = part.keys() - {"type"}
    assert needed <= members, f"{part} lacks {needed - members}"
    assert members <= needed | allowed, f"{part} has {members - needed - allowed}"
    assert not [name for name in members - nulls if part[name] is None], f"{part} holds null"
