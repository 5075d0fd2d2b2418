"""The dialects with the names of parameters or tools as tags."""

from __future__ import annotations

from tests.families.base import SENTENCE, SPACES, Either, Family, Marker, Part, Run, Tag, or_wrapped

_TOKEN = "]<]minimax[>["
_NAMES = ("f", "get_weather", "météo", "a.b-c")
_PARAMETERS = ("a", "city", "count", "size", "loud", "words", "numbers", "place", "naïve", "free")
_AFTER_NAME = (">", "/", " ", "\n", "\r", "\t")


def _elements(prefix: str) -> tuple[str, ...]:
    """Return fragments of elements."""
    opened = (
        "<a>", "<city>", "<count>", "<words>", "<words><item>", "<place>", "<place><x>", "<numbers>", "<free>",
        "<free><x>", "<loud/>", "<numbers>[", '<a b="c">', "<item>", "<a", "<",
    )  # fmt: skip
    closed = ("</a>", "</words>", "</item>", "</ item>", "</place>", "</x></place>", "</count>", "</free>", "</a", "</")
    return tuple(prefix + each.replace("<", prefix + "<").removeprefix(prefix) for each in opened + closed)


def _markers(name: str) -> tuple[Marker, ...]:
    """Return the markers of the calls of a tool."""
    opened: tuple[Part, ...] = ("<", Either((name,)), SPACES, ">", SPACES)
    first = Either(tuple(parameter + following for parameter in _PARAMETERS for following in _AFTER_NAME))
    return (
        Marker((*opened, "{", SPACES, '"')),
        Marker((*opened, "</", SPACES, Either((name,)), SPACES, ">")),
        Marker(("<", Either((name,)), SPACES, "/>")),
        Marker((*opened, "<", first)),
    )


FAMILY = Family(
    markup={
        "minimax_m3_xml": (
            *_elements(_TOKEN), f"{_TOKEN}<tool_call>", f"{_TOKEN}</tool_call>", f"{_TOKEN}</tool_call", _TOKEN[:5],
            f'{_TOKEN}<tool_call>\n{_TOKEN}<invoke name="f">', f'{_TOKEN}<invoke name="g">', f"{_TOKEN}</invoke>",
            f"{_TOKEN}<invoke ", f"{_TOKEN}<tool_call>{_TOKEN}", f"{_TOKEN}<invoke name=f/>", f"{_TOKEN}</inv", _TOKEN,
            f'{_TOKEN}<tool_call>{_TOKEN}<invoke name="f">{_TOKEN}<place>{_TOKEN}<x>', "]", "<mm:think>", "</mm:think>",
            f'{_TOKEN}<tool_call>{_TOKEN}<invoke name="f">{_TOKEN}</invoke>', "<mm:", "</mm:thi",
        ),
        "morph_xml": (
            *_elements(""), "<f>", "<f/>", "<f />", "<f >\n", "</f>", "</ f >", "<get_weather>", "</get_weather>", "<f",
            "<f><a>", "<f>\n<count>1</count>\n", "<f><words>a</words>", "<f><x>", "<f><words><item>", '<f>{"',
            "<f></f>", "<f></", "<f>{", "&lt;", "&am", "<![CDATA[", "]]>", "<get_weather><place><x>",
            "<f><words>x</words><words>",
        ),
    },
    markers={
        "minimax_m3_xml": (
            Marker((f"{_TOKEN}<tool_call>", SPACES, _TOKEN)),
            *or_wrapped((f"{_TOKEN}<tool_call>",), *(
                Marker((f"{_TOKEN}<invoke", Run(" \t\r\n", 1, 32), "name=", Run("<>", 1, 160, others=True), *each))
                for each in ((">", SPACES, _TOKEN), ("/>",), (">", *SENTENCE, _TOKEN))
            )),
        ),
        "morph_xml": tuple(marker for name in _NAMES for marker in _markers(name)),
    },
    tags={
        "minimax_m3_xml": (
            Tag((f"{_TOKEN}</tool_call>",)), Tag(("<mm:think>",), closings=("</mm:think>",))
        ),
    },
    plain=frozenset({"minimax_m3_xml", "morph_xml"}),
)  # fmt: skip
