"""The definitions of tools, as the SDKs type them and as they send them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from streamtools.tools import ToolRegistry, tool
from tests.support.signatures import TOOLS

pytestmark = pytest.mark.sdk


@tool(examples=[{"city": "Bern"}])
def weather(city: str) -> str:
    """Tell the weather."""
    return city


REGISTRY = ToolRegistry(weather, [each for each in TOOLS if not each.is_unbound])


def openai_chat() -> tuple[Any, Any]:
    from openai.types.chat import ChatCompletionToolParam

    return ChatCompletionToolParam, REGISTRY.definitions("openai")


def openai_responses() -> tuple[Any, Any]:
    from openai.types.responses import FunctionToolParam

    return FunctionToolParam, REGISTRY.definitions("responses")


def anthropic() -> tuple[Any, Any]:
    from anthropic.types import ToolParam

    return ToolParam, REGISTRY.definitions("anthropic")


def ollama() -> tuple[Any, Any]:
    from ollama import Tool

    return Tool, REGISTRY.definitions("ollama")


def gemini() -> tuple[Any, Any]:
    from google.genai.types import Tool

    return Tool, REGISTRY.definitions("gemini")


@pytest.mark.parametrize(
    "typed", [openai_chat, openai_responses, anthropic, ollama, gemini], ids=lambda it: it.__name__
)
def test_the_types_of_the_sdk_accept_each_definition(typed: Any) -> None:
    """Every signature of the table, read by the type with which the SDK checks its callers, nothing unknown left over.

    Ollama's own type knows fewer members of a property than there are, and passes over the others.
    """
    kind, definitions = typed()
    adapter = TypeAdapter(kind)
    for each in definitions:
        adapter.validate_python(each, extra=None if typed is ollama else "forbid")
