"""Loads the examples as modules, and provides a scripted model over HTTP."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

from tests.support.loopback import Loopback
from tests.support.readme import ROOT

EXAMPLES = ROOT / "examples"
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def piece(text: str) -> bytes:
    """Return a delta with this text."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n"


def say(text: str) -> Loopback:
    """Return an answer with this text."""
    return Loopback([piece(text), END])


def call(name: str, **arguments: Any) -> Loopback:
    """Return an answer with this call."""
    return say(f"~~~tool_call\n{json.dumps({'name': name, 'arguments': arguments})}\n~~~\n")


def load(name: str) -> ModuleType:
    """Import an example again, and return it."""
    spec = spec_from_file_location(f"example_{name.replace('/', '_')}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are resolved in this module
    spec.loader.exec_module(module)
    return module
