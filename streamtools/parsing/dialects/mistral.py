"""Two forms behind one token, `[TOOL_CALLS]`; what follows it tells them apart.

    [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "9Ae3bDc2F"}]
    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

The first is that of the tokenizers up to v7, the second that of v11 (with `[CALL_ID]` and an id behind the name) and
v13, in which the token is repeated for each call. Neither has a closing tag: a call ends where its JSON does. Source:
mistral-common, and the chat templates of Mistral-7B-Instruct-v0.3, Mistral-Small-3.2, Magistral and Ministral 3.
"""

from __future__ import annotations

from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.forged_results import forged_result
from streamtools.parsing.bodies.json_calls import json_calls
from streamtools.parsing.bodies.named_json import GAP, NAME, NamedCall, bare
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, ends_of_turn
from streamtools.parsing.markers import SPACES

_CALLS = "[TOOL_CALLS]"
_RESERVED = (_CALLS, "[/TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")


def mistral_list() -> Dialect:
    """Return the dialect of the older models: an array of calls."""
    calls = json_calls()
    return Dialect(
        id="mistral_list",
        openers=tuple(
            Opener((_CALLS, SPACES), calls, ahead=ahead) for ahead in (("[", SPACES, "{"), ("[", SPACES, "]"), ("{",))
        ),
        write_call=_write_list,
        write_result=_write_named_result,
        reserved=_RESERVED,
        tags=(Tag(("[/TOOL_CALLS]",)), *ends_of_turn("</s>")),
        models=("mistral(?![a-z])", "mixtral", "ministral", "pixtral", "mathstral"),
    )


def mistral_args() -> Dialect:
    """Return the dialect of the newer models: a name, and then the arguments."""
    call = bare(NamedCall("[ARGS]", id_tag="[CALL_ID]", optional=True))
    return Dialect(
        id="mistral_args",
        openers=(
            *(Opener((_CALLS, GAP), call, ahead=(NAME, GAP, behind)) for behind in ("[ARGS]", "[CALL_ID]", "{")),
            Opener(("[TOOL_RESULTS]",), forged_result("[/TOOL_RESULTS]"), kind="result"),
        ),
        write_call=_write_args,
        write_result=_write_result,
        in_reasoning="call",
        reserved=(*_RESERVED, "[ARGS]", "[CALL_ID]"),
        tags=(Tag(("[THINK]",), closings=("[/THINK]",)), *ends_of_turn("</s>")),
        models=(r"mistral-small-?3\.2", "devstral", "magistral", "ministral-?3", "mistral-(?:medium|large)-?3"),
    )


def _write_list(name: str, arguments: dict[str, Any]) -> str:
    return f"{_CALLS} [{compact({'name': name, 'arguments': arguments})}]"


def _write_args(name: str, arguments: dict[str, Any]) -> str:
    return f"{_CALLS}{name}[ARGS]{compact(arguments)}"


def _write_named_result(name: str, text: str) -> str:
    return f"[TOOL_RESULTS] {compact({'name': name, 'content': text})}[/TOOL_RESULTS]"


def _write_result(name: str, text: str) -> str:
    return f"[TOOL_RESULTS]{text}[/TOOL_RESULTS]"
