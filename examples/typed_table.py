"""Rows of a table, each validated and printed as soon as it is complete.

    MODEL_URL=http://127.0.0.1:8080/v1 python typed_table.py "The five largest cities of Norway"

Without `MODEL_URL`, a scripted model answers.
"""

from __future__ import annotations

import os
import sys

import anyio
from pydantic import BaseModel, Field

from streamtools import OutputOptions, chat
from streamtools.conversation import OpenAIChat, ScriptedModel


class City(BaseModel):
    """A row."""

    name: str
    people: int = Field(ge=0)


class Cities(BaseModel):
    """The requested output."""

    cities: list[City]


SCRIPT = '{"cities": [{"name": "Oslo", "people": 717710}, {"name": "Bergen", "people": 291940}]}'


async def main(question: str) -> None:
    """Ask, and print each row when it is complete. An invalid row ends the program with an error."""
    url = os.environ.get("MODEL_URL")
    model = (
        OpenAIChat(os.environ.get("MODEL", "default"), base_url=url, native_tool_calls=True)
        if url
        else ScriptedModel([list(SCRIPT)])
    )
    async with chat(model, [{"role": "user", "content": question}], output=OutputOptions(Cities, retries=1)) as events:
        async for city in events.items(City):
            print(f"{city.name:<20}{city.people:>12,}", flush=True)
    if events.result.output is None:
        sys.exit(f"no table: {'; '.join(error.message for error in events.result.errors) or events.result.reason}")
    print(f"{len(events.result.output.cities)} rows")


if __name__ == "__main__":
    anyio.run(main, " ".join(sys.argv[1:]) or "The two largest cities of Norway")
