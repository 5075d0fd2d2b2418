"""The dialect of Hermes: JSON between tags."""

from __future__ import annotations

from tests.families.base import SPACES, Family, Marker, Tag

FAMILY = Family(
    markup={
        "hermes_json": (
            "<tool_call>", "\n<tool_call>\n", "\n\n<tool_call> {", "<tool_call>{", "<tool_call>[", "<tool_call",
            "<tool",
            "</tool_call>", "\n</tool_call>", "</tool_call>\n", "</tool_", "<tool_call>\n{}\n", "<tool_call>f",
            '<tool_call>{"name":"f"}<tool_call>', '<tool_call>{"name":"f"}{"name":"f"}</tool_call>',
            '<tool_call>[{"name":"f"},{"name":"f"}]</tool_call>', "<tool_response>\n",
            "</tool_call><|im_end|>", "<|im_end|>", "</s>",
        ),
    },
    markers={
        "hermes_json": tuple(Marker(("<tool_call>", SPACES, first), line_feeds=1) for first in "{["),
    },
    tags={
        "hermes_json": (
            Tag(("<|role_end|>",)),
        )
    },
    envelopes=frozenset({"hermes_json"}),
)  # fmt: skip
