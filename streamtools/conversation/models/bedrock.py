"""Calls models of Amazon Bedrock through its Converse API, with an API key or with AWS credentials.

With an API key, no other package is required. Without an API key, botocore (the extra `bedrock`) signs each request.
botocore finds AWS credentials in its standard locations and renews them. The signing runs in a worker thread, because
botocore may have to request credentials from a server.

The name of a model is its id, or the ARN of an inference profile. The URL path contains the name with the same escapes
that botocore uses, because the signature covers the path.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import anyio.to_thread

from streamtools.conversation.models.http_model import HTTPModel, ModelRequest, Sending
from streamtools.conversation.models.model import Ask, Body, add_options, tool_definitions
from streamtools.history import Assistant, system_prompt, write_messages
from streamtools.sources import Source

# Maps the accepted names of options to the names that Converse uses.
_OPTIONS = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "maxTokens"), "maxTokens"),
    **dict.fromkeys(("stop", "stop_sequences", "stopSequences"), "stopSequences"),
    **dict.fromkeys(("top_p", "topP"), "topP"),
    "temperature": "temperature",
}


class BedrockConverse(HTTPModel):
    """A model of Bedrock, with the key in `AWS_BEARER_TOKEN_BEDROCK` or with signed requests.

    The default of `region` is the region in the model's ARN, else `AWS_REGION`, else `AWS_DEFAULT_REGION`.
    `credentials` are credentials of botocore, or any object with the method `get_frozen_credentials`. If they are None,
    botocore finds credentials. `native_tool_calls` is True by default, unless `base_url` is set. The other parameters
    are those of `HTTPModel`.

    Converse has no tool choice `none`. For this tool choice, the request contains the tools only if the history
    contains calls, because Converse would refuse calls without their tools.
    """

    format = "bedrock"
    _default_base_url = ""  # empty, because the base URL depends on the region
    key_names = ("AWS_BEARER_TOKEN_BEDROCK",)

    def __init__(
        self,
        model: str,
        *,
        region: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        native_tool_calls: bool | None = None,
        **other_parameters: Any,
    ) -> None:
        """Raise ValueError if neither a region nor `base_url` is known, and the errors of `HTTPModel`."""
        arn_region = model.split(":")[3] if model.startswith("arn:") and model.count(":") >= 5 else ""
        default_region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._region = region or arn_region or default_region or ""
        if not self._region and base_url is None:
            raise ValueError("The region is not known. Pass `region=`, or set AWS_REGION.")
        if native_tool_calls is None and base_url is None:
            native_tool_calls = True
        base_url = base_url or f"https://bedrock-runtime.{self._region}.amazonaws.com"
        super().__init__(model, base_url=base_url, native_tool_calls=native_tool_calls, **other_parameters)
        self._credentials = credentials

    def body(self, ask: Ask) -> Body:
        body: Body = {"messages": write_messages(ask.history, "bedrock", dialects=ask.dialects, provider=self.origin)}
        if system := system_prompt(ask.history):
            body["system"] = [{"text": system}]
        choice = ask.tool_choice
        has_calls = any(isinstance(message, Assistant) and message.calls for message in ask.history)
        if ask.tools and (choice.mode != "none" or has_calls):
            config: Body = {"tools": tool_definitions(ask, "bedrock")}
            if choice.mode == "required":
                config["toolChoice"] = {"any": {}}
            elif choice.mode == "tool":
                config["toolChoice"] = {"tool": {"name": choice.name}}
            body["toolConfig"] = config
        return add_options(body, ask, self.options, inside="inferenceConfig", names=_OPTIONS)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        request = self._request(ask)
        if any(name.lower() == "authorization" for name in request.headers):
            return Sending(request, self._client)
        return self._send_signed(request)

    @asynccontextmanager
    async def _send_signed(self, request: ModelRequest) -> AsyncIterator[Source]:
        headers = await anyio.to_thread.run_sync(self._sign, request)
        async with Sending(replace(request, headers=headers), self._client) as source:
            yield source

    def _path(self) -> str:
        return f"/model/{quote(self.name, safe='')}/converse-stream"

    def _sign(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the headers of a request with its signature. May request credentials from a server."""
        try:
            from botocore.auth import SigV4Auth
            from botocore.awsrequest import AWSRequest
            from botocore.session import get_session
        except ImportError as error:
            message = "Signing needs botocore. Install `streamtools[bedrock]`, or set AWS_BEARER_TOKEN_BEDROCK."
            raise ImportError(message) from error
        if self._credentials is None:
            self._credentials = get_session().get_credentials()
        if self._credentials is None or not self._region:
            missing = "AWS credentials" if self._region else "a region"
            raise ValueError(f"Signing needs {missing}. To send an API key instead, set AWS_BEARER_TOKEN_BEDROCK.")
        signed = AWSRequest("POST", request.url, headers=dict(request.headers), data=request.content)
        SigV4Auth(self._credentials.get_frozen_credentials(), "bedrock", self._region).add_auth(signed)
        return dict(signed.headers.items())
