"""Agent frameworks with their public interfaces. `Framework` is the common interface for the tests.

Functions import the frameworks, because no environment has all of them: they require different versions of an SDK.
"""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel

from streamtools.gateway import ToolCallTransport
from tests.support.gateway import SCHEMA

QUESTION = "Weather?"
TOOL: Any = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}}
BLOCK: Any = {"name": "weather", "description": "The weather.", "input_schema": SCHEMA}


class City(BaseModel):
    """The requested form of an answer."""

    city: str


class Ran(NamedTuple):
    """The result of a question: the cities of the tool calls, and the final text."""

    cities: list[str]
    said: str


class Framework(ABC):
    """A framework that sends requests to a URL. With `over_transport`, its client uses `ToolCallTransport`."""

    distributions: tuple[str, ...]
    """The packages that the documentation tells the versions of."""
    library = "httpx2"

    def __init__(self, url: str, *, over_transport: bool) -> None:
        http = __import__(self.library)
        transport = ToolCallTransport() if over_transport else None
        self.http = http.AsyncClient(transport=transport, trust_env=False)
        self.url = url
        self.cities: list[str] = []

    def weather(self, city: str) -> str:
        """The weather."""
        self.cities.append(city)
        return "Sunny."

    def client(self) -> Any:
        """Return the openai client for the framework."""
        import openai

        return openai.AsyncOpenAI(base_url=self.url, api_key="k", max_retries=0, http_client=self.http)

    @abstractmethod
    async def loop(self, *, streamed: bool) -> Ran:
        """Ask, run the tools, and ask again with their results."""

    @abstractmethod
    async def force(self, *, streamed: bool) -> list[str]:
        """Ask with a forced tool call. Returns the cities of the calls."""

    @abstractmethod
    async def form(self, *, streamed: bool) -> Any:
        """Ask for an answer in the form of `City`."""

    @property
    def ran(self) -> list[str]:
        """Return the recorded cities and clear the record. They are sorted, because tools run concurrently."""
        cities, self.cities = sorted(self.cities), []
        return cities


class PydanticAi(Framework):
    """pydantic-ai: an agent on chat completions."""

    distributions = ("pydantic-ai-slim",)

    def _agent(self, **options: Any) -> Any:
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        return Agent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=self.client())), **options)

    async def loop(self, *, streamed: bool) -> Ran:
        agent = self._agent(tools=[self.weather])
        if not streamed:
            said = (await agent.run(QUESTION)).output
            return Ran(self.ran, said)
        async with agent.iter(QUESTION) as run:
            async for node in run:
                if agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as events:
                        async for _ in events:
                            pass
        return Ran(self.ran, run.result.output)

    async def _output(self, agent: Any, *, streamed: bool) -> Any:
        if not streamed:
            return (await agent.run(QUESTION)).output
        async with agent.run_stream(QUESTION) as run:
            return await run.get_output()

    async def force(self, *, streamed: bool) -> list[str]:
        await self._output(self._agent(output_type=self.weather), streamed=streamed)  # it must call this
        return self.ran

    async def form(self, *, streamed: bool) -> Any:
        return await self._output(self._agent(output_type=City), streamed=streamed)


class Agents(Framework):
    """OpenAI's Agents SDK, on chat completions."""

    distributions = ("openai-agents",)
    model = "OpenAIChatCompletionsModel"

    def _agent(self, **options: Any) -> Any:
        import agents

        agents.set_tracing_disabled(True)
        options = {"tools": [agents.function_tool(self.weather)], **options}
        return agents.Agent(name="a", model=getattr(agents, self.model)("m", self.client()), **options)

    async def _output(self, agent: Any, *, streamed: bool) -> Any:
        from agents import Runner

        if not streamed:
            return (await Runner.run(agent, QUESTION)).final_output
        run = Runner.run_streamed(agent, QUESTION)
        async for _ in run.stream_events():
            pass
        return run.final_output

    async def loop(self, *, streamed: bool) -> Ran:
        said = await self._output(self._agent(), streamed=streamed)
        return Ran(self.ran, said)

    async def force(self, *, streamed: bool) -> list[str]:
        from agents import ModelSettings

        agent = self._agent(model_settings=ModelSettings(tool_choice="weather"), tool_use_behavior="stop_on_first_tool")
        await self._output(agent, streamed=streamed)
        return self.ran

    async def form(self, *, streamed: bool) -> Any:
        return await self._output(self._agent(output_type=City, tools=[]), streamed=streamed)


class LangChain(Framework):
    """LangChain's agent, and its model without an agent."""

    distributions = ("langchain", "langchain-openai")

    def _model(self) -> Any:
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model="m", base_url=self.url, api_key="k", max_retries=0, http_async_client=self.http)

    def _tool(self) -> Any:
        from langchain_core.tools import tool

        return tool(self.weather)

    async def loop(self, *, streamed: bool) -> Ran:
        from langchain.agents import create_agent

        agent, asked = create_agent(self._model(), [self._tool()]), {"messages": [("user", QUESTION)]}
        if not streamed:
            said = (await agent.ainvoke(asked))["messages"][-1].content
            return Ran(self.ran, said)
        events = [each async for each in agent.astream_events(asked, version="v2")]
        streams = [each["data"]["chunk"].content for each in events if each["event"] == "on_chat_model_stream"]
        said = "".join(streams).removeprefix("I look at both.")
        return Ran(self.ran, said)

    async def force(self, *, streamed: bool) -> list[str]:
        model = self._model().bind_tools([self._tool()], tool_choice="weather")
        chunks = [each async for each in model.astream(QUESTION)] if streamed else [await model.ainvoke(QUESTION)]
        told = sum(chunks[1:], chunks[0])
        return sorted(each["args"]["city"] for each in told.tool_calls)

    async def form(self, *, streamed: bool) -> Any:
        model = self._model().with_structured_output(City)
        return [each async for each in model.astream(QUESTION)][-1] if streamed else await model.ainvoke(QUESTION)


class LlamaIndex(Framework):
    """LlamaIndex's agent, with its model class for OpenAI-compatible servers."""

    distributions = ("llama-index-core", "llama-index-llms-openai-like")
    library = "httpx"

    def _model(self) -> Any:
        from llama_index.llms.openai_like import OpenAILike

        known = {"is_chat_model": True, "is_function_calling_model": True, "max_retries": 0}
        return OpenAILike(model="m", api_base=self.url, api_key="k", async_http_client=self.http, **known)

    def _tool(self) -> Any:
        from llama_index.core.tools import FunctionTool

        return FunctionTool.from_defaults(self.weather)

    async def loop(self, *, streamed: bool) -> Ran:
        from llama_index.core.agent.workflow import FunctionAgent

        agent = FunctionAgent(tools=[self._tool()], llm=self._model(), streaming=streamed)
        said = str(await agent.run(QUESTION))
        return Ran(self.ran, said)

    async def force(self, *, streamed: bool) -> list[str]:
        model, asked = self._model(), {"user_msg": QUESTION, "tool_required": True}
        if streamed:
            told = [each async for each in await model.astream_chat_with_tools([self._tool()], **asked)][-1]
        else:
            told = await model.achat_with_tools([self._tool()], **asked)
        return sorted(each.tool_kwargs["city"] for each in model.get_tool_calls_from_response(told))

    async def form(self, *, streamed: bool) -> Any:
        from llama_index.core.llms import ChatMessage

        model, asked = self._model().as_structured_llm(City), [ChatMessage(QUESTION)]
        return (
            [each async for each in await model.astream_chat(asked)][-1] if streamed else await model.achat(asked)
        ).raw


class OpenAi(Framework):
    """openai, whose users keep the conversation themselves."""

    distributions = ("openai",)
    question: ClassVar[list[Any]] = [{"role": "user", "content": QUESTION}]

    async def _ask(self, *, streamed: bool = False, **options: Any) -> Any:
        completions = self.client().chat.completions
        asked = {"model": "m", "messages": self.question, **options}
        if not streamed:
            return await (completions.parse if "response_format" in options else completions.create)(**asked)
        async with completions.stream(**asked) as stream:
            return await stream.get_final_completion()

    async def loop(self, *, streamed: bool) -> Ran:
        messages = self.question
        while True:
            told = await self._ask(messages=messages, tools=[TOOL], streamed=streamed)
            message = told.choices[0].message
            if not message.tool_calls:
                return Ran(self.ran, message.content)
            messages = [*messages, message.model_dump(exclude_none=True)]
            for call in message.tool_calls:
                said = self.weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": said})

    async def force(self, *, streamed: bool) -> list[str]:
        told = await self._ask(
            streamed=streamed, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "weather"}}
        )
        return sorted(json.loads(each.function.arguments)["city"] for each in told.choices[0].message.tool_calls)

    async def form(self, *, streamed: bool) -> Any:
        told = await self._ask(streamed=streamed, response_format=City)
        return City.model_validate_json(told.choices[0].message.content)


class LiteLlm(OpenAi):
    """LiteLLM, which joins the chunks of a stream."""

    distributions = ("litellm",)
    library = "httpx"

    async def _ask(self, *, streamed: bool = False, **options: Any) -> Any:
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it downloads prices
        import litellm

        options = {"messages": self.question, "client": self.client(), "stream": streamed, **options}
        told = await litellm.acompletion("openai/m", api_base=self.url, api_key="k", num_retries=0, **options)
        return litellm.stream_chunk_builder([chunk async for chunk in told]) if streamed else told


class Anthropic(Framework):
    """anthropic, with the Messages API."""

    distributions = ("anthropic",)

    async def _ask(self, *, streamed: bool = False, **options: Any) -> Any:
        import anthropic

        client = anthropic.AsyncAnthropic(
            base_url=self.url.removesuffix("/v1"), api_key="k", max_retries=0, http_client=self.http
        )
        asked = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": QUESTION}], **options}
        if not streamed:
            return await client.messages.parse(**asked)
        async with client.messages.stream(**asked) as stream:
            return await stream.get_final_message()

    async def loop(self, *, streamed: bool) -> Ran:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        while True:
            told = await self._ask(messages=messages, tools=[BLOCK], streamed=streamed)
            calls = [each for each in told.content if each.type == "tool_use"]
            if not calls:
                return Ran(self.ran, told.content[0].text)
            said = [(each.id, self.weather(**each.input)) for each in calls]
            results = [{"type": "tool_result", "tool_use_id": id, "content": result} for id, result in said]
            messages += [{"role": "assistant", "content": told.content}, {"role": "user", "content": results}]

    async def force(self, *, streamed: bool) -> list[str]:
        told = await self._ask(streamed=streamed, tools=[BLOCK], tool_choice={"type": "tool", "name": "weather"})
        return sorted(each.input["city"] for each in told.content if each.type == "tool_use")

    async def form(self, *, streamed: bool) -> Any:
        return (await self._ask(streamed=streamed, output_format=City)).parsed_output
