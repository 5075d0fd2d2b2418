"""Counts the work of a server: Python instructions and calls by function, and system calls.

Other programs on the machine do not change counts, unlike times. Work in C functions and in the kernel is not counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_OURS = str(Path(__file__).resolve().parents[2]) + "/"
_SYSTEM = {"poll": "epoll_wait", "register": "epoll_ctl", "unregister": "epoll_ctl", "modify": "epoll_ctl"}
_SOCKET = ("send", "sendmsg", "recv", "recv_into", "accept", "sendto")


class Counts:
    """Counts from `begin` to `end`, in all coroutines."""

    def __init__(self) -> None:
        self._names: dict[CodeType, str] = {}
        self.instructions: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.system: Counter[str] = Counter()

    def begin(self) -> None:
        """Start counting at zero."""
        for each in (self.instructions, self.calls, self.system):
            each.clear()
        sys.settrace(self._trace)
        sys.setprofile(self._profile)

    def end(self) -> dict[str, dict[str, int]]:
        """Return the counts. Functions are written as `package file function`."""
        sys.settrace(None)
        sys.setprofile(None)
        return {"instructions": self.instructions, "calls": self.calls, "system": self.system}

    def _trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        if event != "call":
            return None
        name = self._names.get(frame.f_code) or self._names.setdefault(frame.f_code, _name(frame.f_code))
        self.calls[name] += 1
        frame.f_trace_opcodes, frame.f_trace_lines = True, False

        def within(_: FrameType, event: str, __: Any) -> Callable[..., Any]:
            if event == "opcode":
                self.instructions[name] += 1
            return within

        return within

    def _profile(self, _: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            name, of = called.__name__, type(getattr(called, "__self__", None)).__name__
            if of == "epoll" and name in _SYSTEM:
                self.system[_SYSTEM[name]] += 1
            elif of == "socket" and name in _SOCKET:
                self.system[name] += 1


def _name(code: CodeType) -> str:
    file = code.co_filename
    if file.startswith(_OURS) and "site-packages" not in file:
        file = file.removeprefix(_OURS)
    elif "site-packages/" in file:
        file = file.rpartition("site-packages/")[2]
    else:
        file = "python/" + file.rpartition("/python3.")[2].partition("/")[2]
        file = file.removeprefix("python/") if file.startswith("python/asyncio/") else file
    return f"{file.partition('/')[0]} {file} {code.co_qualname}"
