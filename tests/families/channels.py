"""The dialects whose tokens divide the text into channels."""

from __future__ import annotations

from collections.abc import Iterator

from tests.families.base import AFTER_WRAPPER, SPACES, Either, Family, Free, Marker, Part, Run, Tag

_GAP = Run(" \t", 0, 4)
_JSON: tuple[Part, ...] = ("{", SPACES, Either(('"', "}")))
_LINE = Run("\r\n", 0, 4)
_HARMONY_WORD = Run("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+/ \t-", 0, 24)
_FORMAT: tuple[Part, ...] = (_GAP, Either(("<|constrain|>", "")), _HARMONY_WORD, "<|message|>")
_NAME = Run(" \t\r\n<>|", 0, 96, others=True)
_BEFORE_JSON = Run(" \t\r\n<>|{", 1, 96, others=True)
_TO_TOOL = r"\bto=(?!(?:assistant|user|self)(?![\w.-]))"
_SELF_ENDS = ("<|call|>", "<|end|>", "<|return|>", "<|eom|>", "<|eot|>")
_TO_SELF = ("<|start|>assistant to=self<|message|>", "to=self<|message|>")
_PEOPLE = Either(("assistant", "user"))
_HARMONY_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_HARMONY_BEGINS = ("<|start|>", "<|channel|>")
_STARTS: tuple[tuple[Part, ...], ...] = (("<|channel|>",), ("<|start|>assistant",))
_EARLY = Either((*_HARMONY_ENDS, "<|start|>"))


def _free(without: str = "(?!)") -> Free:
    return Free("\r\n<>|{", ("<|channel|>", "<|constrain|>", "\n<|channel|>", "\n<|constrain|>"), without)


_ANY, _NO_TOOL = _free(), _free(_TO_TOOL)
_AFTER_CHANNEL = _free(f"{_TO_TOOL}|nalysis|ommentary|[Ff]inal")

# Headers whose tokens a server has removed.
_ASCII = "abcdefghijklmnopqrstuvwxyz"
_PUNCTUATION = "!%&'()+,-./:;<=>?@[\\]^_`{|}~\x7f" + "".join(
    map(chr, (*range(33), *range(0x80, 0xC0), *range(0x2000, 0x2100)))
)
_LETTER = Run(_PUNCTUATION, 1, 1, others=True)
_NO_LOWER = Run(_PUNCTUATION.replace("{", "") + _ASCII, 1, 1, others=True)
_OTHER = Run(_PUNCTUATION.replace(" ", ""), 1, 1)
_WORDS = ("assistantanalysis", "assistantcommentary", "assistantfinal")
_BEFORE_TOOL = ("analysis to=", "commentary to=", "final to=")
_THOUGHTS_END = (*_HARMONY_BEGINS, *_WORDS, "assistant to=functions.", "commentary to=functions.")
_KIND = (Run(" \t", 1, 4), Either(("json", "code")), Run(" \t", 1, 1, others=True))


def _unmarked() -> Iterator[Marker]:
    for end in (("{",), _KIND):
        for to in ("assistant to=functions.", *(f"{word} to=" for word in _WORDS[:2])):
            yield Marker((to, _BEFORE_JSON, *end))
        for to in (*_BEFORE_TOOL, "to=functions."):
            yield Marker((to, _BEFORE_JSON, *end), where="start")


def _unmarked_tags() -> Iterator[Tag]:
    yield Tag(("analysis", _LETTER), closings=_HARMONY_ENDS, before=_THOUGHTS_END, where="start")
    yield Tag(("commentary", _LETTER), where="start")
    yield Tag(("final", _NO_LOWER), where="start")
    yield Tag((_WORDS[0], _LETTER), closings=_HARMONY_ENDS, before=_THOUGHTS_END)
    yield Tag((_WORDS[0], _OTHER), closings=_HARMONY_ENDS, before=_THOUGHTS_END, where="start")
    yield Tag((_WORDS[2], " "), where="start")
    for word in _WORDS:
        yield from (Tag((word, end), where="start") for end in ("\n", "\r\n", _OTHER))
        yield Tag((word, _LETTER))


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
            "<|channel|>final<|channel|>analysis<|message|>", "<|channel|>analysis to=user<|message|>", "analysisWe",
            "assistantfinal", "finalThe", "commentary to=functions.f json{}", "assistantcommentary to=f{", "assistant",
            "<|channel|>commentary to=f<|channel|>analysis to=functions.f<|message|>", "<|channel|>-final?? code",
            "<|channel|>Analysis\n<|message|>", "<|channel|>commentary to=f\n<|constrain|>json\n", "\n<|message|>",
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
            *(Marker((*start, _ANY, "to=", _NAME, _ANY, _LINE, "<|message|>")) for start in _STARTS),
            *(Marker((*start, _ANY, "to=", _BEFORE_JSON, _ANY, _LINE, *_JSON)) for start in _STARTS),
            *(Marker((*start, _ANY, "to=", _NAME, _ANY, _EARLY)) for start in _STARTS),
            Marker(("to=", _NAME, _GAP, "<|channel|>", _ANY, _LINE, "<|message|>"), where="start"),
            Marker(("<|start|>functions.", _ANY, "<|message|>"), kind="result"),
            *_unmarked(),
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
            Tag((_TO_SELF[0],), closings=_SELF_ENDS, before=_HARMONY_BEGINS),
            Tag((_TO_SELF[1],), closings=_SELF_ENDS, before=_HARMONY_BEGINS, where="start"),
            *(
                Tag(
                    (*start, _NO_TOOL, "nalysis", _AFTER_CHANNEL, _LINE, "<|message|>"),
                    closings=_HARMONY_ENDS,
                    before=_HARMONY_BEGINS,
                )
                for start in _STARTS
            ),
            *(Tag((*start, _NO_TOOL, _LINE, "<|message|>")) for start in _STARTS),
            *(Tag((*start, _NO_TOOL, _EARLY)) for start in _STARTS),
            Tag(("analysis", *_FORMAT), closings=_HARMONY_ENDS, before=_HARMONY_BEGINS, where="start"),
            *(Tag((word, *_FORMAT), where="start") for word in ("final", "commentary")),
            Tag(("to=", _PEOPLE, _GAP, "<|channel|>", _NO_TOOL, "<|message|>"), where="start"),
            Tag(("<|start|>", Either(("user", "system", "developer")), "<|message|>")),
            *(Tag((end,)) for end in _HARMONY_ENDS),
            *_unmarked_tags(),
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
