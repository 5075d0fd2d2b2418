"""The dialects whose tokens divide the text into channels."""

from __future__ import annotations

from tests.families.base import AFTER_WRAPPER, SPACES, Either, Family, Marker, Part, Run, Tag

_GAP = Run(" \t", 0, 4)
_HARMONY_WORD = Run("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+/ \t-", 0, 24)
_FORMAT: tuple[Part, ...] = (_GAP, Either(("<|constrain|>", "")), _HARMONY_WORD, "<|message|>")
_CHANNEL: tuple[Part, ...] = (
    "<|channel|>", Run("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-", 1, 16),
)  # fmt: skip
_TO: tuple[Part, ...] = (Run(" \t", 1, 4), "to=")
_WHO = Run(" \t\r\n<>|", 1, 96, others=True)
_PEOPLE = Either(("assistant", "user"))
_HARMONY_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_HARMONY_BEGINS = ("<|start|>", "<|channel|>")
_STARTS: tuple[tuple[Part, ...], ...] = ((), ("<|start|>assistant",))

_ANALYSIS = "<|channel|>analysis"
_THOUGHTS: tuple[tuple[Part, ...], ...] = (
    *((*start, _ANALYSIS, *_FORMAT) for start in _STARTS),
    *((*start, *_CHANNEL, _GAP, _ANALYSIS, *_FORMAT) for start in _STARTS),
    *((*start, _ANALYSIS, *_TO, _PEOPLE, *_FORMAT) for start in _STARTS),
    ("<|start|>assistant", *_TO, _PEOPLE, _GAP, _ANALYSIS, *_FORMAT),
)

_K3_ATTRIBUTES = Run("<", 0, 192, others=True)

FAMILY = Family(
    markup={
        "harmony": (
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>", "<|start|>assistant", "<|start|>",
            "<|channel|>commentary to=f<|message|>{}<|call|>", "<|channel|>final<|message|>", "<|end|>", "<|call|>",
            "<|channel|>analysis<|message|>", "<|return|>", "<|channel|>", "<|message|>", " to=f", "<|constrain|>json",
            "<|start|>functions.f to=assistant<|channel|>commentary<|message|>", "<|channel|>analysis to=python code",
            "<|start|>assistant to=functions.f<|channel|>commentary json<|message|>", "<|", "<|cha", "|>", "null",
            "<|start|>assistant to=f<|message|>", "<|start|>user<|message|>", "<|channel|>commentary to=user", "to=",
            "to=functions.f<|channel|>commentary<|message|>",
            "<|channel|>commentary to=f<|channel|>commentary<|message|>",
            "<|channel|>final<|channel|>analysis<|message|>", "<|channel|>analysis to=user<|message|>",
        ),
        "cohere_action_json": (
            "<|START_ACTION|>", "<|START_ACTION|>[", "<|START_ACTION|>\n{", "<|END_ACTION|>", "]<|END_ACTION|>", "<|ST",
            "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>",
            "<|END_OF_TURN_TOKEN|>", "<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>", "<|START_ACTION|> <|END_ACTION|>",
            '<|START_ACTION|>[{"tool_name":"f"},{"tool_name":"f"}]<|END_ACTION|>', '"tool_call_id":"0",', "<|END_",
        ),
        "kimi_k3_xtml": (
            '<|open|>call tool="f" index="1"<|sep|>', "<|open|>call ", "<|open|>call", "<|open|>tools<|sep|>",
            '<|open|>argument key="a" type="string"<|sep|>', '<|open|>argument key="count" type="number"<|sep|>12',
            "<|close|>argument<|sep|>", "<|close|>call<|sep|>", "<|close|>tools<|sep|>", "<|close|>message<|sep|>",
            '<|open|>json type="object"<|sep|>{}<|close|>json<|sep|>', "<|open|>think<|sep|>", "<|close|>think<|sep|>",
            "<|open|>response<|sep|>", "<|close|>response<|sep|>", '<|open|>message role="tool" tool="f"<|sep|>',
            "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", '<|open|>argument key="free"<|sep|>', "<|op",
        ),
    },
    markers={
        "harmony": (
            *(Marker((*start, *_CHANNEL, *_TO, _WHO, *_FORMAT)) for start in _STARTS),
            *(Marker((*start, *_CHANNEL, *_TO, _WHO, _GAP, *_CHANNEL, *_FORMAT)) for start in _STARTS),
            Marker(("<|start|>assistant", *_TO, _WHO, _GAP, *_CHANNEL, *_FORMAT)),
            Marker(("<|start|>assistant", *_TO, _WHO, *_FORMAT)),
            Marker(("to=", _WHO, _GAP, *_CHANNEL, *_FORMAT), where="start"),
            Marker(("<|start|>functions.", _WHO, *_TO, "assistant", _GAP, *_CHANNEL, *_FORMAT), kind="result"),
        ),
        "cohere_action_json": (
            *(Marker(("<|START_ACTION|>", SPACES, first)) for first in "[{"),
            Marker(("<|START_TOOL_RESULT|>",), kind="result"),
        ),
        "kimi_k3_xtml": (
            Marker(("<|open|>call ",)),
            Marker(("<|open|>tools<|sep|>", *AFTER_WRAPPER), wraps=True),
            Marker(('<|open|>message role="tool"', _K3_ATTRIBUTES, "<|sep|>"), kind="result"),
        ),
    },
    tags={
        "harmony": (
            *(Tag(header, closings=_HARMONY_ENDS, before=_HARMONY_BEGINS) for header in _THOUGHTS),
            *(Tag((*start, *_CHANNEL, *more, *_FORMAT)) for start in _STARTS for more in ((), (_GAP, *_CHANNEL))),
            Tag(("analysis", *_FORMAT), closings=_HARMONY_ENDS, before=_HARMONY_BEGINS, where="start"),
            *(Tag((word, *_FORMAT), where="start") for word in ("final", "commentary")),
            *(Tag((*start, *_CHANNEL, *_TO, _PEOPLE, *_FORMAT)) for start in _STARTS),
            *(Tag((*start, *_CHANNEL, *_TO, _PEOPLE, _GAP, *_CHANNEL, *_FORMAT)) for start in _STARTS),
            Tag(("<|start|>assistant", *_TO, _PEOPLE, _GAP, *_CHANNEL, *_FORMAT)),
            Tag(("<|start|>", Either(("assistant", "user", "system", "developer")), "<|message|>")),
            *(Tag((end,)) for end in _HARMONY_ENDS),
        ),
        "cohere_action_json": (
            Tag(
                ("<|START_THINKING|>",),
                closings=("<|END_THINKING|>",),
                before=("<|START_ACTION|>", "<|START_RESPONSE|>", "<|START_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
            ),
            *(Tag((f"<|START_{each}|>",)) for each in ("RESPONSE", "TEXT")),
            *(Tag((f"<|END_{each}|>",)) for each in ("RESPONSE", "TEXT", "THINKING", "ACTION")),
            *(Tag((f"<|{each}|>",)) for each in ("START_OF_TURN_TOKEN", "END_OF_TURN_TOKEN", "CHATBOT_TOKEN")),
            Tag(("<|START_ACTION|>", SPACES, "<|END_ACTION|>")),
        ),
        "kimi_k3_xtml": (
            Tag(
                ("<|open|>think<|sep|>",),
                closings=("<|close|>think<|sep|>",),
                before=("<|open|>response<|sep|>", "<|open|>tools<|sep|>", "<|close|>message<|sep|>"),
            ),
            Tag(("<|open|>response<|sep|>",)),
            *(Tag((f"<|close|>{each}<|sep|>",)) for each in ("think", "response", "tools", "message")),
            Tag(('<|open|>message role="', Either(("assistant", "user", "system")), '"', _K3_ATTRIBUTES, "<|sep|>")),
            Tag(("<|end_of_msg|>",)),
        ),
    },
    envelopes=frozenset({"cohere_action_json"}),
    plain=frozenset(),
)  # fmt: skip
