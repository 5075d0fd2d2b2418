"""The two dialects that a prompt teaches by default, with and without a nonce."""

from __future__ import annotations

from tests.families.base import SPACES, WORD, Family, Marker, Run, line

_NAMED = (Run(" \t", 1, 32), Run(WORD, 1, 64))
_NONCE = (Run(" \t", 1, 32), "k7")

FAMILY = Family(
    markup={
        "hash_marker": (
            "###:", "###:{", '###:{"', '###:{"name":"f"', "###: {\n", "#", "##", "###", "### ", "####", "###:{}",
            "###:{x}", "### :", "\n### Title\n", "a###:", "###result", "###result now: {", '###result now: {"a":1}',
            "###:\r\n{", '{"toolName":"g","parameters":{"a":"b"}}', '{"toolName":',
        ),
        "tilde_fence": (
            "~~~tool_call", "~~~tool_call\n", "\n~~~tool_call\n", "~~~tool_call \t\r\n", "~", "~~", "~~~", "\n~~~",
            "~~~\n", "~~~~", " ~~~", "~~~tool_caller\n", "~~~tool_result\n", "~~~tool_result now\n", "\n~~~tool_res",
            "- ~~~tool_call\n", "~~~tool_call\n```json\n", '[{"name":"a"},{"name":"b"}]', "~~~tool_call\n[",
        ),
        "hash_marker_k7": (
            "###k7:", "###k7:{", '###k7:{"', '###k7:{"name":"f"', "###k7: {\n", "#", "##", "###", "###k", "###k7", "k7",
            '###:{"name":"f"}', '###k8:{"name":"f"}', '###k:{"', "###k77:{", "### k7:{", "###result", "###k7:{}",
            "###result k7 now: {", '###result k7 now: {"a":1}', '###result now: {"a":1}', "###result k8 now: {",
            "###K7:{", "###k7:{x}", '{"toolName":"g","parameters":{"a":"b"}}', '{"toolName":',
        ),
        "tilde_fence_k7": (
            "~~~tool_call k7", "~~~tool_call k7\n", "\n~~~tool_call \tk7\n", "~~~tool_call k7 \t\r\n", "~", "~~", "~~~",
            "\n~~~", "~~~\n", "~~~~", " ~~~", "~~~tool_call\n", "~~~tool_call k8\n", "~~~tool_callk7\n", "k7",
            "~~~tool_call k7 k7\n", "~~~tool_call k77\n", "~~~tool_result k7\n", "~~~tool_result k7 now\n",
            "~~~tool_result now\n", "~~~tool_result k8 now\n", "\n~~~tool_res", "~~~tool_call k7\n[",
            '[{"name":"a"},{"name":"b"}]', "~~~tool_call k7\n```json\n",
        ),
    },
    markers={
        "hash_marker": (
            Marker(("###:", SPACES, "{", SPACES, '"'), apart=True),
            Marker(("###result", *_NAMED, ":", SPACES, "{"), kind="result", apart=True),
        ),
        "tilde_fence": (
            *line("~~~tool_call", kind="call"),
            *line("~~~tool_result", kind="result"),
            *line("~~~tool_result", *_NAMED, kind="result"),
        ),
        "hash_marker_k7": (
            Marker(("###k7:", SPACES, "{", SPACES, '"'), apart=True),
            Marker(("###result", *_NONCE, *_NAMED, ":", SPACES, "{"), kind="result", apart=True),
        ),
        "tilde_fence_k7": (
            *line("~~~tool_call", *_NONCE, kind="call"),
            *line("~~~tool_result", *_NONCE, kind="result"),
            *line("~~~tool_result", *_NONCE, *_NAMED, kind="result"),
        ),
    },
    envelopes=frozenset({"hash_marker", "tilde_fence", "hash_marker_k7", "tilde_fence_k7"}),
)  # fmt: skip
