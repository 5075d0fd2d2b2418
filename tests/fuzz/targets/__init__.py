"""All targets by name, the most important first. Each is created on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from streamtools.parsing.dialects import TAUGHT_DIALECTS
from streamtools.sources import ADAPTERS
from tests.fuzz.target import Target
from tests.fuzz.targets import decisions, dialects, foreign, frames, gateway, growth, machine, recordings, sources, told
from tests.support.variants import KNOWN

_FIRST = ("frames", "machine", "decisions", *(f"dialect:{each}" for each in TAUGHT_DIALECTS))

TARGETS: dict[str, Callable[[], Target]] = {
    "frames": frames.make,
    "machine": machine.make,
    "decisions": decisions.make,
    **{f"dialect:{each}": partial(dialects.make, each) for each in TAUGHT_DIALECTS},
    "auto": dialects.make_auto,
    **{f"source:{each}": partial(sources.make, each) for each in (*ADAPTERS, *sources.OTHERS)},
    **foreign.MAKE,
    **told.MAKE,
    **gateway.MAKE,
    **recordings.MAKE,
    **growth.MAKE,
    **{f"dialect:{each}": partial(dialects.make, each) for each in KNOWN if each not in TAUGHT_DIALECTS},
}


def choose(names: Iterable[str]) -> list[str]:
    """Return the names of the chosen targets: `all`, `first`, a name, or a kind such as `source`."""
    chosen: dict[str, None] = {}
    for name in names:
        groups = {"all": list(TARGETS), "first": list(_FIRST)}
        kind = [each for each in TARGETS if each.startswith(f"{name}:")]
        found = groups.get(name) or ([name] if name in TARGETS else kind)
        if not found:
            raise LookupError(f"no target is named {name!r}; see --list")
        chosen |= dict.fromkeys(found)
    return list(chosen)
