"""How calls are emulated for a model that makes none: what a caller may choose."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Mode: TypeAlias = Literal["off", "fallback", "force"]


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """How calls are emulated.

    `"fallback"` asks for a decision where an answer holds no call, `"force"` in every turn. `keep_system="quote"` shows
    it the application's system prompt as data, which is otherwise left out of it. `reuse_upstream_answer` takes the
    first answer where no tool is needed, in place of another request. `decision_options` are merged into the body of
    the decision's request, from which stop words, formats and the limit of the answer's length are left out. `now`
    gives the nanoseconds in the ids of calls. Raises ValueError for a value that is not allowed.
    """

    mode: Mode = "fallback"
    keep_system: Literal["drop", "quote"] = "drop"
    reuse_upstream_answer: bool = False
    decision_options: Mapping[str, Any] = field(default_factory=dict)
    now: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        for name, allowed in (("mode", ("off", "fallback", "force")), ("keep_system", ("drop", "quote"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is one of {', '.join(map(repr, allowed))}, not {getattr(self, name)!r}")


def check(emulation: Emulation, *, has_tools: bool, self_contained: bool) -> None:
    """Raise ValueError for an emulation that has nothing to choose from."""
    if emulation.mode == "force" and not has_tools:
        raise ValueError("emulation is forced, and there are no function tools")
    if emulation.mode != "off" and self_contained:
        raise ValueError("a self-contained agent runs its tools itself; its calls cannot be emulated")
