"""The dialects with the names of tools and parameters in attributes."""

from __future__ import annotations

from tests.families.base import SPACES, Either, Family, Marker, Part, Run, Tag

_GAP = Run(" \t\r\n", 1, 32)
_NAMED = Run("<>", 1, 160, others=True)
_MARKS: tuple[tuple[Part, ...], ...] = (("｜DSML｜", Run(" ", 0, 1)), ("|DSML|", Run(" ", 0, 1)))
_INNER = ("invoke", "parameter")
_WRAPPER = Either(("tool_calls", "function_calls", "calls"))

_ATEM_START = "<|start|>assistant "
_ATEM_ENDS = ("<|eom|>", "<|eot|>")
_ATEM_NAME = Run(" \t\r\n<>|", 1, 128, others=True)


def _markup(prefix: str, wrapper: str) -> tuple[str, ...]:
    """Return fragments of tags with this prefix, and texts that look like them."""
    return (
        f'<{prefix}invoke name="f">', f"<{prefix}invoke name='f' >", f"<{prefix}invoke name=f/>", f"<{prefix}invoke ",
        f'<{prefix}invoke name="', f"<{prefix}inv", f"</{prefix}invoke>", f"</{prefix}invoke >\n", f"</{prefix}inv",
        f'<{prefix}parameter name="a">', f'<{prefix}parameter name="count">', f"<{prefix}parameter name='words'>[",
        f"<{prefix}parameter>", f"<{prefix}param", f"</{prefix}parameter>", f"</{prefix}par", f"</{prefix}parameter",
        f'<{prefix}invoke name="f"><{prefix}parameter name="a">', f'<{prefix}parameter name="a"/>',
        f"<{wrapper}>", f"\n<{wrapper}>\n", f"<{wrapper}><", f'<{wrapper}>\n<{prefix}invoke name="f">', f"<{wrapper}",
        f"</{wrapper}>", f"\n</{wrapper}>\n", f"</{wrapper}", f"</{wrapper[:4]}", f"<{wrapper[:4]}", "<", "</",
        f'<{wrapper}><{prefix}invoke name="f">{{"a":"b"}}', f'<{prefix}invoke name="f"></{prefix}invoke></{wrapper}>',
        f'<{wrapper}>\n<{prefix}invoke name="f">\n</{prefix}invoke>x', f'<{wrapper}><{prefix}invoke name="g"/>',
    )  # fmt: skip


FAMILY = Family(
    markup={
        "deepseek_dsml": (
            *_markup("｜DSML｜", "｜DSML｜tool_calls"),
            "\n\n<｜DSML｜function_calls>\n<", "<｜DSML｜ calls><｜DSML｜ invoke name='f'>", "</｜DSML｜ invoke>",
            '<｜DSML｜parameter name="a" string="true">', '<｜DSML｜parameter name="count" string="false">',
            *_markup("|DSML|", "|DSML|tool_calls")[:12],
            "</｜DSML｜ parameter>", "</｜DSML｜ calls>", "<｜", "<｜DSML", "<｜DSML｜ ", "</｜DSML｜tool_calls",
        ),
        "gigachat35": (
            *_markup("｜GCML｜", "｜GCML｜tool_calls"), '<｜GCML｜parameter name="a" string="true">', "<｜",
            '<｜GCML｜parameter name="count" string="false">', "<｜GCML", "</｜GCML｜",
        ),
        "dots_xml": (
            *_markup("", "dots_function_call"), "<dots_function_call>{", "<dots_function_call>\n{", "<dots_",
            '<dots_function_call>{"name":"f"}</dots_function_call>', '{"name":"f"}',
        ),
        "minimax_m2_xml": _markup("", "minimax:tool_call"),
        "anthropic_xml": (
            *_markup("", "function_calls"), "<function_results>", "<function_results>\n<result>", "</function_results>",
        ),
        "atem_xml": (
            *_markup("atem:", "atem:function_calls"), "to=self<|message|>", " to=user<|message|>", "to=f<|mess", "to=",
            "<|start|>assistant to=self<|message|>", "<|start|>assistant to=user<|message|>", "<|eom|>", "<|eot|>",
            "<|start|>assistant to=f<|message|><atem:function_calls>", "<|st", "<|eo",
        ),
        "minicpm5_xml": (
            '<function name="f">', "<function name='f'>", "<function name=f />", "<function ", "</function>",
            '<param name="a">', "<param name='count'>", '<param name="words">[', "</param>", "</par", "</func",
            "<param name='a'/>", "<![CDATA[", "]]>", "]]", " <![CDATA[x]]> ", "&lt;", "&amp;", "&am", "&x;",
            "<function", "<function name='f'></function>", '<function name="f"><param name="a">', "</param >",
        ),
    },
    markers={
        "deepseek_dsml": (
            *(Marker(("<", *mark, _WRAPPER, ">", SPACES, "<"), line_feeds=2) for mark in _MARKS),
            *(Marker(("<", *mark, "invoke", _GAP, "name="), line_feeds=2) for mark in _MARKS),
        ),
        "gigachat35": (
            *(Marker((f"<{bar}GCML{bar}tool_calls>", SPACES, "<"), line_feeds=1) for bar in "｜|"),
            *(Marker((f"<{bar}GCML{bar}invoke", _GAP, "name="), line_feeds=1) for bar in "｜|"),
        ),
        "dots_xml": tuple(Marker(("<dots_function_call>", SPACES, first)) for first in "<{"),
        "minimax_m2_xml": (Marker(("<minimax:tool_call>", SPACES, Either(("<", "invoke name="))), line_feeds=1),),
        "anthropic_xml": (
            Marker(("<function_calls>", SPACES, Either(("<invoke", "<parameter")))),
            Marker(("<invoke", _GAP, "name=", _NAMED, ">", SPACES, Either(("<parameter", "</invoke", "{")))),
            Marker(("<invoke", _GAP, "name=", _NAMED, "/>")),
            Marker(("<function_results>", SPACES, "<"), kind="result"),
        ),
        "atem_xml": (
            Marker(("<|start|>assistant to=", _ATEM_NAME, "<|message|>")),
            Marker(("to=", _ATEM_NAME, "<|message|>"), where="start"),
        ),
        "minicpm5_xml": (
            Marker(("<function", _GAP, "name=", _NAMED, ">", SPACES, Either(("<param", "</function")))),
            Marker(("<function", _GAP, "name=", _NAMED, "/>")),
        ),
    },
    tags={
        "deepseek_dsml": tuple(Tag(("</", *mark, Either((*_WRAPPER.words, *_INNER)), ">")) for mark in _MARKS),
        "gigachat35": tuple(Tag((f"</{bar}GCML{bar}", Either(("tool_calls", *_INNER)), ">")) for bar in "｜|"),
        "dots_xml": (Tag(("</dots_function_call>",)),),
        "minimax_m2_xml": (Tag(("</minimax:tool_call>",)),),
        "atem_xml": (
            Tag(("to=self<|message|>",), closings=_ATEM_ENDS, before=(_ATEM_START,), where="start"),
            Tag(("to=user<|message|>",), where="start"),
            Tag((f"{_ATEM_START}to=self<|message|>",), closings=_ATEM_ENDS, before=(_ATEM_START,)),
            Tag(("<|start|>assistant to=user<|message|>",)),
            *(Tag((end,)) for end in _ATEM_ENDS),
            Tag(("</atem:function_calls>",), where="after_call"),
        ),
    },
)  # fmt: skip
