"""What parsers stumble over: pieces of text for properties to put together in any order."""

from __future__ import annotations

JSON = (
    "{", "}", "[", "]", ",", ":", '"', '\\"', "\\", '"name"', '"f"', '{"name":"f"', '"arguments":', '"arguments":{',
    '"function":{', '"tool":"f"', '"args":', '"{\\"a\\":1}"', '{"a":1}', "null", "true", "-1", "1e999", "NaN", "'",
    "\\u00e9", "\\ud83d\\ude00", "\\ud83d", '"\n"', "\x00", "tru",
)  # fmt: skip

PROSE = (
    "x", "word ", " ", "  ", "\t", "é", "😀", "A sentence. ", "_", "9", ".", "<", "tool_call", "\ud83d", "\u2028",
    "name:",
)  # fmt: skip

MARKDOWN = (
    "\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "`", "``", "```", "```\n", "\n```json\n", "````\n", "> ", "\n> ", "- ",
    "\n1. ", "* ", "    ", "\\", "\\`", "\n# ", "|", "\n~~~\n",
)  # fmt: skip

CODE = ("`", "``", "\n```\n", "\n~~~\n", "\n> ", "\n- > ", "\n1. ```json\n  ", "\\\\`")
"""What begins code or a quote."""

TAGS = (
    "<think>", "</think>", "<thi", "nk>", "<thinking>", "</thinking>", "<reasoning>", "[THINK]", "[/THINK]", "[/THI",
    "</thinking",
)  # fmt: skip

STRINGS = (
    "}", '"]}', "\\", "```", "\n\n", "\t\x01", "é😀", "", "'", '"', "\n", " x ", "\nx\n", "a, b", "-1", "2.50",
    "true", "null", "None", "[1]", '{"a": 1}', "&lt;&amp;", "<b>x</b>", "</", "]]>", "<![CDATA[", "\u2028", "0x1f",
)  # fmt: skip
"""What is meant to be misread in arguments."""
