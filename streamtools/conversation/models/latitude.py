"""The request of a Latitude run, as the seed's chat front end sends it: to be posted to whoever runs the prompt.

The whole history goes along although the run has an id: that is how it is done there. Calls come back as text behind
`###:`, whose tools the request lists as `toolClients`; read the answer with `sources.latitude`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streamtools.history import Message, read_messages, write_messages
from streamtools.parsing.dialects import Dialect, Dialects, choose_dialects
from streamtools.tools import ToolRegistry, ToolsLike

PROMPT = "briefPlanner"
"""The prompt that is run if none is named."""


def latitude_request(
    messages: Iterable[Mapping[str, Any] | Message],
    *,
    prompt_path: str | None = None,
    conversation_uuid: str | None = None,
    tools: ToolsLike | Iterable[Mapping[str, Any]] = None,
    media: Iterable[Any] = (),
    dialects: Dialects = None,
    **extras: Any,
) -> dict[str, Any]:
    """Return the body of the request.

    Messages that are dicts go along as they are. `tools` are ours, or dicts that are `toolClients` already. `extras`
    (`todos`, `briefs`, …) are the application's own, and pass. Raises ValueError for one that would replace ours.

    >>> latitude_request([{"role": "user", "content": "Hi"}], conversation_uuid="c1", todos=[])["todos"]
    []
    """
    body: dict[str, Any] = {
        "messages": _write(list(messages), choose_dialects(dialects)),
        "promptPath": prompt_path or PROMPT,
    }
    if conversation_uuid is not None:
        body["conversationUuid"] = conversation_uuid
    offered = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, Mapping) else tools
    ready = isinstance(offered, list) and bool(offered) and all(type(each) is dict for each in offered)
    ours: dict[str, Any] = {
        "media": list(media),
        "toolClients": copy.deepcopy(offered) if ready else ToolRegistry.of(offered).definitions("tool_clients"),
    }
    taken = {"conversationUuid", *body, *ours} & extras.keys()
    if taken:
        raise ValueError(f"{', '.join(sorted(taken))} is given by a parameter of its own")
    return body | extras | ours


def _write(messages: Sequence[Mapping[str, Any] | Message], armed: Sequence[Dialect]) -> list[dict[str, Any]]:
    ready = [dict(each) for each in messages if isinstance(each, Mapping)]
    return ready if len(ready) == len(messages) else write_messages(read_messages(messages), "openai", dialects=armed)
