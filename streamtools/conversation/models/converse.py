"""Models of Amazon Bedrock, by Converse: with an API key as a bearer, or signed with the credentials of AWS.

A key is all that the package itself needs. Without one each request is signed by botocore (the extra `bedrock`), which
looks for credentials in its usual places and renews them; it does so in a thread, since it may have to ask a server.

A model is named by its id, or by the ARN of an inference profile. Either stands in the path of the request, escaped as
botocore escapes it, because the signature holds for the path as it is sent.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import anyio.to_thread

from streamtools.conversation.models.http_model import Ask, Body, HTTPModel, complete, define
from streamtools.conversation.models.sending import Request, Sending
from streamtools.history import Assistant, system_prompt, write_messages
from streamtools.sources import Source

_OPTIONS = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "maxTokens"), "maxTokens"),
    **dict.fromkeys(("stop", "stop_sequences", "stopSequences"), "stopSequences"),
    **dict.fromkeys(("top_p", "topP"), "topP"),
    "temperature": "temperature",
}


class BedrockConverse(HTTPModel):
    """A model of Bedrock; the key is that of `AWS_BEARER_TOKEN_BEDROCK`, and without one requests are signed.

    `region` is that of `AWS_REGION` or `AWS_DEFAULT_REGION`, or of the ARN, unless given. `credentials` are botocore's
    (anything with its `get_frozen_credentials`); without them its usual chain is asked. Converse has no `tool_choice`
    of `none`: no tools are sent then, unless the history holds calls, without whose tools it is refused.
    """

    format = "bedrock"
    _home = ""  # has a region in it
    key_names = ("AWS_BEARER_TOKEN_BEDROCK",)

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        native_tool_calls: bool | None = None,
        **given: Any,
    ) -> None:
        """Raises ValueError where the region is not known, and as other models do."""
        of_arn = model.split(":")[3] if model.startswith("arn:") and model.count(":") >= 5 else ""
        environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._region = region or of_arn or environment or ""
        if not self._region and base_url is None:
            raise ValueError("the region is not known: give `region=`, or set AWS_REGION")
        if native_tool_calls is None and base_url is None:
            native_tool_calls = True
        base_url = base_url or f"https://bedrock-runtime.{self._region}.amazonaws.com"
        super().__init__(model, base_url=base_url, native_tool_calls=native_tool_calls, **given)
        self._credentials = credentials

    def body(self, ask: Ask) -> Body:
        body: Body = {"messages": write_messages(ask.history, "bedrock", dialects=ask.dialects, provider=self.origin)}
        if system := system_prompt(ask.history):
            body["system"] = [{"text": system}]
        choice = ask.tool_choice
        called = any(isinstance(each, Assistant) and each.calls for each in ask.history)
        if ask.tools and (choice.mode != "none" or called):
            config: Body = {"tools": define(ask, "bedrock")}
            if choice.mode == "required":
                config["toolChoice"] = {"any": {}}
            elif choice.mode == "tool":
                config["toolChoice"] = {"tool": {"name": choice.name}}
            body["toolConfig"] = config
        return complete(body, self.options, ask.options, inside="inferenceConfig", names=_OPTIONS)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        request = self._request(ask)
        if any(name.lower() == "authorization" for name in request.headers):
            return Sending(request, self._client)
        return self._send_signed(request)

    @asynccontextmanager
    async def _send_signed(self, request: Request) -> AsyncIterator[Source]:
        headers = await anyio.to_thread.run_sync(self._sign, request)
        async with Sending(replace(request, headers=headers), self._client) as source:
            yield source

    def _path(self) -> str:
        return f"/model/{quote(self.name, safe='')}/converse-stream"

    def _sign(self, request: Request) -> Mapping[str, str]:
        """Return the headers of a request with its signature; asks for credentials, so that it may take a while."""
        try:
            from botocore.auth import SigV4Auth
            from botocore.awsrequest import AWSRequest
            from botocore.session import get_session
        except ImportError as error:
            why = "signing needs botocore: install `streamtools[bedrock]`, or set AWS_BEARER_TOKEN_BEDROCK"
            raise ImportError(why) from error
        if self._credentials is None:
            self._credentials = get_session().get_credentials()
        if self._credentials is None or not self._region:
            lacks = "credentials of AWS" if self._region else "region"
            raise ValueError(f"there is no {lacks} to sign with, and no AWS_BEARER_TOKEN_BEDROCK")
        signed = AWSRequest("POST", request.url, headers=dict(request.headers), data=request.content)
        SigV4Auth(self._credentials.get_frozen_credentials(), "bedrock", self._region).add_auth(signed)
        return dict(signed.headers.items())
