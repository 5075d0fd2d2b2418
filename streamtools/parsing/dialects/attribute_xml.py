"""Calls in XML whose attributes are the names: how they are written, and how they begin without a wrapper."""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.attributes import Invocations
from streamtools.parsing.bodies.tags import attribute, section
from streamtools.parsing.dialects.base import Opener
from streamtools.parsing.dialects.writing import keep_from
from streamtools.parsing.markers import SPACES, OneOf, Some


def write_invocation(
    name: str,
    arguments: dict[str, Any],
    *,
    invoke: str = "invoke",
    parameter: str = "parameter",
    end: str = "",
    typed: bool = False,
    xml: bool = False,
    line: str = "\n",
) -> str:
    """Return one call without a wrapper; the names of the tags come with their prefix.

    If `typed`, an attribute says what is a string. With `xml`, CDATA sections hold what could be taken for a tag.
    Without, the closing tag of a value, or what `end` says that it begins with, cannot stand in the value, and gets a
    word joiner (U+2060).
    """
    written = [f"<{invoke} name={attribute(name)}>"]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else compact(value)
        text = section(text) if xml else keep_from(text, end or f"</{parameter}")
        kind = f' string="{str(isinstance(value, str)).lower()}"' if typed else ""
        written.append(f"<{parameter} name={attribute(key)}{kind}>{text}</{parameter}>")
    return line.join([*written, f"</{invoke}>"])


def bare_openers(form: Invocations, *inner: str) -> tuple[Opener, ...]:
    """Return the openers of a call without a wrapper. It takes the first tag inside to tell it from a mere mention."""
    named = ("name=", Some("^<>", 1, 160))
    return (
        Opener(form.invoke, form.bare, ahead=(*named, ">", SPACES, OneOf(inner))),
        Opener(form.invoke, form.bare, ahead=(*named, "/>")),
    )
