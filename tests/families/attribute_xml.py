"""The dialects with the names of tools and parameters in attributes."""

from __future__ import annotations

from tests.families.base import SENTENCE, SPACES, Either, Family, Marker, Part, Run, Tag, or_wrapped

_GAP = Run(" \t\r\n", 1, 32)
_NAMED = Run("<>", 1, 160, others=True)
_BARS, _BLANK = Either(("｜", "|")), Run(" ", 0, 1)


def _marks(word: str) -> tuple[tuple[Part, ...], ...]:
    """Return the marks that begin with each of the two bars."""
    return tuple((bar, _BLANK, word, _BLANK, _BARS, _BLANK) for bar in _BARS.words)


def _bare(*first: str, invoke: str = "invoke", lead: str = "") -> tuple[Marker, ...]:
    """Return the markers of a call in which one of `first` is the first tag. Text may precede the first of them."""
    begin: tuple[Part, ...] = (f"{lead}<{invoke}", _GAP, "name=", _NAMED)
    aheads = (">", SPACES, Either(first)), ("/>",), (">", *SENTENCE, first[0])
    return tuple(Marker((*begin, *ahead)) for ahead in aheads)


_MARKS = _marks("DSML")
_INVOKES = _bare("<parameter", "</invoke", "{")
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
            *(
                marker
                for mark in _MARKS
                for marker in or_wrapped(
                    ("<", *mark, _WRAPPER, ">"), Marker(("<", *mark, "invoke", _GAP, "name="), line_feeds=2)
                )
            ),
        ),
        "gigachat35": (
            *(Marker(("<", *mark, "tool_calls>", SPACES, "<"), line_feeds=1) for mark in _marks("GCML")),
            *(
                marker
                for mark in _marks("GCML")
                for marker in or_wrapped(
                    ("<", *mark, "tool_calls>"), Marker(("<", *mark, "invoke", _GAP, "name="), line_feeds=1)
                )
            ),
        ),
        "dots_xml": (
            *(Marker(("<dots_function_call>", SPACES, first)) for first in "<{"),
            *or_wrapped(("<dots_function_call>",), *_INVOKES),
        ),
        "minimax_m2_xml": (
            Marker(("<minimax:tool_call>", SPACES, Either(("<", "invoke name="))), line_feeds=1),
            *or_wrapped(("<minimax:tool_call>",), *_INVOKES),
        ),
        "anthropic_xml": (
            Marker(("<function_calls>", SPACES, Either(("<invoke", "<parameter")))),
            *or_wrapped(("<function_calls>",), *_INVOKES),
            Marker(("<function_results>", SPACES, "<"), kind="result"),
        ),
        "atem_xml": (
            Marker(("<|start|>assistant to=", _ATEM_NAME, "<|message|>")),
            Marker(("to=", _ATEM_NAME, "<|message|>"), where="start"),
        ),
        "minicpm5_xml": _bare("<param", "</function", "</param", invoke="function"),
    },
    tags={
        "deepseek_dsml": tuple(Tag(("</", *mark, Either((*_WRAPPER.words, *_INNER)), ">")) for mark in _MARKS),
        "gigachat35": tuple(Tag(("</", *mark, Either(("tool_calls", *_INNER)), ">")) for mark in _marks("GCML")),
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
