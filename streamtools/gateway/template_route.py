"""The template of a server without its parser: what a parser has eaten, nobody behind it can bring back. Sans-IO.

Two servers tell how they would write a conversation for the model: llama.cpp's gives the text of the prompt
(`/apply-template`), vLLM the ids of its tokens (`/tokenize`). The model is then asked to go on with that, and what it
writes comes as it wrote it, tokens of its template included. The forms are those of the servers' documentation; there
were no such servers to try them with.

A text that llama.cpp is given gets the token that begins a text, if the model has one, so its template writes none;
vLLM's ids hold it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from streamtools.events import SourceEvent
from streamtools.gateway.client_requests import Asked, object_in
from streamtools.gateway.upstream_requests import UpstreamRequest
from streamtools.history import User
from streamtools.outputs.encoder import to_json
from streamtools.parsing.dialects import Dialect, families_for
from streamtools.sources.frames import Frame
from streamtools.sources.wire_formats.openai import ChatCompletions

NO_TEMPLATE = (404, 405, 501)
"""How a server answers that has no such endpoint."""

Body = dict[str, Any]

_OF_TEMPLATE = ("messages", "tools", "tool_choice", "parallel_tool_calls")
_TO_TEMPLATE = ("messages", "tools", "chat_template_kwargs", "reasoning_effort")
_IM, _EOT, _END = ("<|im_end|>",), ("<|eot_id|>", "<|eom_id|>"), ("<|end|>",)
_ENDS = (_IM, _EOT, _END, ("<|endoftext|>",), ("<end_of_turn>",), ("<|END_OF_TURN_TOKEN|>",))
"""Tokens with which templates end a turn, those of one template together."""
_STOPS = {"limit": "length"}


class Template(NamedTuple):
    """One of the servers."""

    name: str

    def ask(self, chat: bytes) -> UpstreamRequest:
        """Return the request for the prompt that a request of chat completions would be written as."""
        body = msgspec.json.decode(chat)
        asked = {name: body[name] for name in _TO_TEMPLATE if name in body}
        if self.name == "llama.cpp":
            return UpstreamRequest("apply-template", to_json(asked))
        how = {"add_generation_prompt": True, "add_special_tokens": False, "return_token_strs": True}
        return UpstreamRequest("tokenize", to_json(asked | how | {"model": body.get("model", "")}))

    def complete(self, answer: bytes, chat: bytes, dialects: Sequence[Dialect]) -> tuple[UpstreamRequest, bool] | None:
        """Return the request to go on with a prompt, and whether that begins inside of reasoning.

        None if what was `told` is no prompt.
        """
        if (found := object_in(answer)) is None:
            return None
        body = msgspec.json.decode(chat)
        model = body.get("model", "")
        rest = {name: each for name, each in body.items() if name not in (*_OF_TEMPLATE, "chat_template_kwargs")}
        known = [part for each in dialects for tag in each.tags if tag.ends_turn for part in tag.parts]
        stop = body.get("stop") or []

        def stops(text: str) -> list[str]:
            ends = [each for each in _ENDS if any(end in text for end in each)] or _ENDS
            own = dict.fromkeys((*known, *(end for each in ends for end in each)))
            return [*([stop] if isinstance(stop, str) else stop), *own]

        if self.name == "llama.cpp":
            prompt = found.get("prompt")
            if not isinstance(prompt, str):
                return None
            limit = rest.pop("max_completion_tokens", None) or rest.pop("max_tokens", None)
            length = {} if limit is None else {"n_predict": limit}
            kept = {"preserved_tokens": _markers(dialects), "cache_prompt": True}
            made = {**rest, **length, **kept, "prompt": prompt, "stop": stops(prompt)}
            return UpstreamRequest("completion", to_json(made)), _thinks(prompt, model)
        tokens, texts = found.get("tokens"), found.get("token_strs")
        if not isinstance(tokens, list) or not tokens:
            return None
        text = "".join(each for each in texts if isinstance(each, str)) if isinstance(texts, list) else ""
        raw = {"skip_special_tokens": False, "spaces_between_special_tokens": False, "add_special_tokens": False}
        limit = rest.pop("max_completion_tokens", None) or rest.get("max_tokens")
        if limit is not None:  # completions have one of their own, of 16
            rest["max_tokens"] = limit
        made = {**rest, **raw, "prompt": tokens, "stop": stops(text)}
        return UpstreamRequest("completions", to_json(made)), _thinks(text[-256:].replace("Ċ", "\n"), model)

    def read(self, value: Body) -> Body:
        """Return an answer that is not streamed as one of chat completions."""
        if "choices" not in value:
            value = _as_chunk(value)
        choices = value["choices"] if isinstance(value["choices"], list) else []
        return {**value, "choices": [_with_message(each) for each in choices if isinstance(each, dict)]}


class LlamaCompletions(ChatCompletions):
    """The stream of `/completion`, whose events hold `content` and, in the last, why it ends; and completions."""

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        value = object_in(frame.data)
        if value is not None and "content" in value and "choices" not in value:
            frame = Frame(to_json(_as_chunk(value)), frame.event)
        super()._read(frame, events)


def template_of(upstream: str) -> Template | None:
    """Return the way to an upstream's template, if it is known to have one."""
    return Template(upstream) if upstream in ("llama.cpp", "vllm") else None


def unfit_for_template(asked: Asked) -> str | None:
    """Return why a request cannot take this way: it holds more than texts, or wants what the server's own way does."""
    users = [message.content for message in asked.history if isinstance(message, User)]
    if not all(isinstance(each, str) or all(part.get("type") == "text" for part in each) for each in users):
        return "content"
    wants = (name for name in ("response_format", "logprobs", "grammar") if asked.options.get(name))
    return next(wants, None if asked.options.get("n") in (None, 1) else "n")


def _markers(dialects: Sequence[Dialect]) -> list[str]:
    """Return the tokens that the markers of dialects may be."""
    found = (part for each in dialects for opener in each.openers for part in opener.parts if isinstance(part, str))
    reserved = (word for each in dialects for word in each.reserved)
    return list(dict.fromkeys(each for each in (*found, *reserved) if each.strip()))


def _thinks(prompt: str, model: str) -> bool:
    opened = ("<think>", "[THINK]", *(family.reasoning for family in families_for(model) if family.reasoning))
    return prompt.rstrip().endswith(opened)


def _as_chunk(value: Body) -> Body:
    """Return what `/completion` sends as a chunk of chat completions."""
    choice: Body = {"index": 0, "delta": {"content": value.get("content")}, "finish_reason": None}
    if value.get("stop") is not True:
        return {"model": value.get("model"), "choices": [choice]}
    choice["finish_reason"] = _STOPS.get(str(value.get("stop_type")), "stop")
    counts = {"prompt_tokens": value.get("tokens_evaluated"), "completion_tokens": value.get("tokens_predicted")}
    return {"model": value.get("model"), "choices": [choice], "usage": counts}


def _with_message(choice: Body) -> Body:
    delta = choice.get("delta")
    text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
    return {**choice, "message": {"role": "assistant", "content": text}}
