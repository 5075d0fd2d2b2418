"""What can be asked of `streamtools record`."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from typing import Any

from streamtools.recording import DETECT
from streamtools.sources import ADAPTERS


@dataclass(frozen=True, kw_only=True)
class Record:
    """`streamtools record`"""

    url: str | None
    origin: str | None
    out: str
    body: str | None
    headers: list[tuple[str, str]]
    source: str
    redact: list[re.Pattern[str]]
    json: bool


def add_record(commands: Any, epilog: str) -> None:
    """Add the command to the others."""
    record = commands.add_parser(
        "record",
        help="record a stream",
        description="Ask a provider, write what it streams into a recording with its cuts and times, and show it as it "
        "comes; or make a recording of a stream that was saved. Headers are written from a short list; what is named "
        "like a credential, and keys of known formats wherever they stand, are overwritten.",
        epilog=epilog,
    )
    record.set_defaults(command=Record)
    where = record.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="the address to ask, with POST if there is a --body")
    where.add_argument(
        "--from",
        dest="origin",
        metavar="FILE",
        help="a stream that was saved: what `curl -N` wrote, the payloads of its events one a line (chunks.txt), or a "
        "recording, to be redacted once more",
    )
    record.add_argument("--out", required=True, metavar="FILE", help="the recording; written anew, for your eyes only")
    record.add_argument("--body", metavar="FILE", help="send this; - is standard input")
    record.add_argument(
        "--header",
        dest="headers",
        metavar="NAME:VALUE",
        action="append",
        type=_header,
        default=[],
        help="send this header, such as 'authorization: Bearer …'; may be repeated",
    )
    record.add_argument(
        "--source",
        choices=(DETECT, *ADAPTERS),
        default=DETECT,
        help="whose stream it is (default: that is seen when it is read)",
    )
    record.add_argument(
        "--redact",
        metavar="PATTERN",
        action="append",
        type=_pattern,
        default=[],
        help="overwrite what this regular expression matches, too; may be repeated",
    )
    record.add_argument("--json", action="store_true", help="print events, one JSON object a line, and nothing else")


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not (name.strip() and colon):
        raise argparse.ArgumentTypeError(f"a header is NAME:VALUE, such as 'accept: */*', and {_name(text)!r} is not")
    return name.strip(), value.strip()


def _name(text: str) -> str:
    """Return no more of a header than its name would be: the rest may be a key."""
    return text if len(text) <= 20 else f"{text[:8]}…"


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None
