"""The tools of the demo: small, and real ones all the same.

`streamtools replay FILE --tools streamtools.cli.tools:TOOLS` runs them on any recording.
"""

from __future__ import annotations

from typing import Any

from streamtools.tools import ToolError, ToolRegistry, ToolResult, tool

# Invented, as the demo says: it must work without a network. Degrees Celsius.
_READINGS = {
    "Berlin": ("clear", 11),
    "Lima": ("fog", 18),
    "Madrid": ("sunny", 24),
    "Oslo": ("snow", -2),
    "Paris": ("light rain", 14),
    "Rome": ("sunny", 22),
    "Tokyo": ("cloudy", 19),
    "Vienna": ("windy", 9),
    "東京": ("cloudy", 19),
}


@tool(examples=[{"city": "Berlin"}, {"city": "Lima"}, {"city": "Oslo"}])
def get_weather(city: str) -> Any:
    """Tell the weather in a city. The readings are invented."""
    reading = _READINGS.get(city.strip().title())
    if reading is None:
        raise ToolError(f"there is no reading for {city[:40]!r}; there are {', '.join(_READINGS)}")
    sky, degrees = reading
    told = f"{city}: {sky}, {degrees} °C"
    return ToolResult(model=f"{degrees} °C, {sky}", ui={"city": city, "sky": sky, "celsius": degrees, "message": told})


@tool(examples=[{"a": 2, "b": 3}, {"a": 1.5, "b": 4}])
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


TOOLS = ToolRegistry(get_weather, add)
"""Both of them."""
