"""The request of a Latitude run, as the chat front end of the seed formats sends it.

The whole history is sent although the run has an id. The request lists the tools as `toolClients`, and calls come back
as text after `###:`. Read the answer with `sources.latitude`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from streamtools.conversation.models.model import Body
from streamtools.history import Message, read_messages, write_messages
from streamtools.parsing.dialects import Dialects, choose_dialects
from streamtools.tools import ToolRegistry
from streamtools.tools.registry import ToolsLike

DEFAULT_PROMPT = "briefPlanner"


def latitude_request(
    messages: Iterable[Mapping[str, Any] | Message],
    *,
    prompt_path: str | None = None,
    conversation_uuid: str | None = None,
    tools: ToolsLike | Iterable[Mapping[str, Any]] = None,
    media: Iterable[Any] = (),
    dialects: Dialects = None,
    **extras: Any,
) -> Body:
    """Return the body of the request.

    Messages that are dicts are sent unchanged. `tools` are tools, or dicts that already are `toolClients`. `extras`
    (`todos`, `briefs`, …) belong to the application, and are sent unchanged. Raises ValueError if one of them would
    replace a member of ours.

    >>> latitude_request([{"role": "user", "content": "Hi"}], conversation_uuid="c1", todos=[])["todos"]
    []
    """
    given = list(messages)
    written = [dict(message) for message in given if isinstance(message, Mapping)]
    if len(written) < len(given):
        written = write_messages(read_messages(given), "openai", dialects=choose_dialects(dialects))
    body: Body = {"messages": written, "promptPath": prompt_path or DEFAULT_PROMPT}
    if conversation_uuid is not None:
        body["conversationUuid"] = conversation_uuid
    offered = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, Mapping) else tools
    ready = isinstance(offered, list) and bool(offered) and all(type(tool) is dict for tool in offered)
    ours: Body = {
        "media": list(media),
        "toolClients": copy.deepcopy(offered) if ready else ToolRegistry.of(offered).definitions("tool_clients"),
    }
    taken = {"conversationUuid", *body, *ours} & extras.keys()
    if taken:
        raise ValueError(f"{', '.join(sorted(taken))} is given by a parameter of its own")
    return body | extras | ours
