"""Describes dialects to the property tests. It is a second description that uses nothing of the package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias


class Run(NamedTuple):
    """`least` to `most` of these characters, or with `others` of all other characters."""

    characters: str
    least: int
    most: int
    others: bool = False

    def __contains__(self, character: object) -> bool:
        return (str(character) in self.characters) is not self.others


class Either(NamedTuple):
    """One of several literals."""

    words: tuple[str, ...]


class Free(NamedTuple):
    """The free text of a header: characters other than `others`, and `tokens`, but no match of `without`."""

    others: str
    tokens: tuple[str, ...]
    without: str = "(?!)"
    most: int = 96


Part: TypeAlias = str | Run | Either | Free

WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
PROSE = ".,;:!?'()*/\\|"
"""Punctuation with which no name begins after a marker that people write about."""
BLANKS = Run(" \t", 0, 32)
SPACES = Run(" \t\r\n", 0, 32)
WHITE = " \t\r\n\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
SENTENCE: tuple[Part, ...] = (SPACES, Run("<>{}[]" + WHITE, 1, 1, others=True), Run("<>{}", 0, 160, others=True))
"""A sentence between the tag of a wrapper and the first call."""
AFTER_WRAPPER = (SPACES, Run(" \t\r\n", 1, 1, others=True))
"""Any text after the tag of a wrapper. Without it, the message ends in the tag."""
DECLARED = Either(("f", "get_weather", "météo", "a.b-c", "###:{"))
"""The names of the tools that the property tests declare."""


class Marker(NamedTuple):
    """The beginning of a call or a result, up to its commit point."""

    parts: tuple[Part, ...]
    kind: Literal["call", "result"] = "call"
    where: Literal["anywhere", "line_start", "start", "after_call"] = "anywhere"
    apart: bool = False
    """Not after a letter, a digit or a hash."""
    line_feeds: int = 0
    """The number of line feeds that the template puts before it."""
    wraps: bool = False
    """It begins a wrapper, in which calls have their own markers."""


def or_wrapped(tag: tuple[Part, ...], *calls: Marker) -> tuple[Marker, ...]:
    """Return `calls`, and the markers of the `tag` of their wrapper before a sentence and one of `calls`."""
    return (*calls, *(Marker((*tag, *SENTENCE, *call.parts), wraps=True) for call in calls))


class Tag(NamedTuple):
    """A tag of a template that is no call. With `closings` or `before`, the text after it is reasoning."""

    parts: tuple[Part, ...]
    closings: tuple[str | Marker, ...] = ()
    before: tuple[str, ...] = ()
    where: Literal["anywhere", "line_start", "start", "after_call"] = "anywhere"
    line_feeds: int = 0


SPACE_AT_START = frozenset({"harmony", "atem_xml"})
"""The dialects that hide a space before the first marker or tag of a message."""


ENDS_OF_TURN = (
    *("<|im_end|>", "<|end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|EOT|>", "<|eos|>", "</s>"),
    *("<|end_of_text|>", "<|endoftext|>", "<|endofturn|>", "<|stop|>", "<|END_OF_TURN_TOKEN|>", "<|assistant_end|>"),
    *("<end_of_turn>", "<turn|>", "<|tool_response>", "<|user|>", "<|observation|>", "<|role_end|>", "[e~["),
    *("<｜end▁of▁sentence｜>", "<|end▁of▁sentence|>", "<seed:eos>", "</longcat_s>", "<SPECIAL_12>"),
    *("<|content_model_end_sampling|>", "<|end_of_msg|>", "<|im:end|>", "[unused10]", "<eos>", "<|end_of_sentence|>"),
    *("[|endofturn|]", "[EOS]", "<|return|>"),
)
"""The tokens that end a message. In every dialect, they are hidden after a call."""


def after_call(*tokens: str) -> tuple[Tag, ...]:
    """Return tags that are hidden after a call."""
    return tuple(Tag((token,), where="after_call") for token in tokens)


_CLOSED_BY_TOOL_CALL = (
    "hermes_json", "ernie45_json", "xlam_json", "glm_xml", "poolside_xml", "telechat4_xml", "step_audio2", "rwkv_fence",
)  # fmt: skip
CLOSED_AGAIN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_CLOSED_BY_TOOL_CALL, ("</tool_call>",)),
    **dict.fromkeys(("internlm2", "interns1"), ("<|action_end|>",)),
    **dict.fromkeys(("pythonic", "pythonic_llama4"), ("<|python_end|>",)),
    **dict.fromkeys(("lfm2_pythonic", "minicpm4_python"), ("<|tool_call_end|>",)),
    **dict.fromkeys(("tool_calls_list", "hunyuan_a13b_list"), ("</tool_calls>",)),
    **dict.fromkeys(("llama31_function_tag", "minicpm5_xml"), ("</function>",)),
    "anthropic_xml": ("</invoke>", "</function_calls>"),
    "granite20b_function_call": ("</function_call>",),
    "apertus_list": ("<|tools_suffix|>",),
    "iquest_q1": ("</iquest_tool_call>",),
    "iquest_coder2": ("</iquestcoder_tool_call>",),
    **dict.fromkeys(("longcat_json", "longcat_xml"), ("</longcat_tool_call>",)),
    "lm_studio": ("[END_TOOL_REQUEST]",),
    "pangu_list": ("[unused12]",),
    "pangu2_list": ("<|tool_call_end|>",),
    "qwen25_coder_tools": ("</tools>",),
    "zaya_xml": ("</zyphra_tool_call>",),
    "olmo3_pythonic": ("</function_calls>",),
    "seed_oss_xml": ("</seed:tool_call>",),
    "solar_open2": ("<|tool_call:end|>",),
    "cwm_tool": ("</tool>",),
    "toolcall_list": ("</TOOLCALL>",),
}
"""Closing tags that are hidden after a call, by the dialect."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """The description of some dialects, by their ids."""

    markup: Mapping[str, tuple[str, ...]]
    markers: Mapping[str, tuple[Marker, ...]]
    tags: Mapping[str, tuple[Tag, ...]] = field(default_factory=dict)
    envelopes: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    without_braces: frozenset[str] = frozenset()


def line(*parts: Part, kind: Literal["call", "result"]) -> tuple[Marker, ...]:
    """Return markers on a line of their own, with each of the two line ends."""
    return tuple(Marker((*parts, BLANKS, end), kind, "line_start") for end in ("\n", "\r\n"))
