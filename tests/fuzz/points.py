"""Counted points of the code: the beginning of each function and of each turn of a loop.

While points are counted, functions have other code objects, compiled from the same source with a call at each point. A
trace function would count the same, but would take several times as long.
"""

from __future__ import annotations

import ast
import builtins
import gc
import os
import sys
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeAlias

Place: TypeAlias = tuple[str, int]
Counts: TypeAlias = dict[Place, list[int]]

_COUNTED = tuple(str(Path(__file__).parents[2] / each) + os.sep for each in ("streamtools", "tests"))
_PASSED = "_a_point_is_passed"  # what codes that count call, with the number of the point
_OWN = 64  # bytes of the numbers of what counts
_places: list[Place] = []  # by the numbers of the points


def _pass_by(point: int) -> bool:
    return True


setattr(builtins, _PASSED, _pass_by)


class TooMany(BaseException):
    """More points were passed than the limit for any input."""


class Points:
    """The points of each file that some work has reached."""

    def __init__(self) -> None:
        self._modules = 0
        self._functions: dict[str, list[FunctionType]] = {}
        self._codes: dict[str, list[tuple[FunctionType, CodeType, CodeType]]] = {}

    def meet(self, work: Callable[[], object]) -> None:
        """Do some work, and record the files that it reaches."""
        files: set[str] = set()
        before = sys.gettrace()
        sys.settrace(lambda frame, what, given: files.add(frame.f_code.co_filename))
        try:
            work()
        finally:
            sys.settrace(before)
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            files.update(self._codes)
            self._functions, self._codes = _functions(), {}
        for file in files - self._codes.keys():
            counting = _counting(file) if file.startswith(_COUNTED) else {}
            pairs = ((each, counting.get(_name(each.__code__))) for each in self._functions.get(file, ()))
            self._codes[file] = [(each, each.__code__, code) for each, code in pairs if code is not None]

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the functions of these files inside the block."""
        codes = [each for file in self._codes.values() for each in file]
        for function, _, code in codes:
            function.__code__ = code
        try:
            yield
        finally:
            for function, code, _ in codes:
                function.__code__ = code


def measure(work: Callable[[], object], most: int, sizes: bool = True) -> Counts:
    """Return how often `work` passes each counted point, and how many bytes are allocated after it.

    Without `sizes` it is the passes alone. Raises `TooMany` where one is passed more than `most` times.
    """
    counts = [[0, 0] for _ in _places]
    running, last = [0, 0], 0
    traced, reset = tracemalloc.get_traced_memory, tracemalloc.reset_peak

    def count(point: int) -> bool:
        nonlocal running, last
        now, peak = traced()
        more = peak - last
        if more > _OWN:
            running[1] += more
        running = counts[point]
        running[0] += 1
        if running[0] > most:
            raise TooMany
        reset()
        last = now
        return True

    def count_passes(point: int) -> bool:
        found = counts[point]
        found[0] += 1
        if found[0] > most:
            raise TooMany
        return True

    collects = gc.isenabled()
    gc.disable()
    if sizes:
        tracemalloc.start()
    setattr(builtins, _PASSED, count if sizes else count_passes)
    try:
        work()
        running[1] += traced()[1] - last
    finally:
        setattr(builtins, _PASSED, _pass_by)
        tracemalloc.stop()
        if collects:
            gc.enable()
    places: Counts = {}
    for place, (passes, size) in zip(_places, counts, strict=True):
        if passes:
            both = places.setdefault(place, [0, 0])
            both[0] += passes
            both[1] += size
    return places


def _functions() -> dict[str, list[FunctionType]]:
    """Return all functions of the process, by file."""
    found: dict[str, list[FunctionType]] = defaultdict(list)
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    every = gc.get_objects()
    if frozen:
        gc.freeze()
    for each in every:
        if type(each) is FunctionType and each.__code__.co_filename.startswith(_COUNTED):
            found[each.__code__.co_filename].append(each)
    return found


def _name(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


@cache
def _counting(file: str) -> dict[tuple[str, int], CodeType]:
    """Return the counting codes of a file, by name and line. Two lambdas in one line are left out."""
    tree = _Counting(file).visit(ast.parse(Path(file).read_bytes()))
    codes: dict[tuple[str, int], list[CodeType]] = defaultdict(list)
    more = [compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)]
    while more:
        code = more.pop()
        codes[_name(code)].append(code)
        more += (each for each in code.co_consts if isinstance(each, CodeType))
    return {name: found[0] for name, found in codes.items() if len(found) == 1}


class _Counting(ast.NodeTransformer):
    """Inserts a call at each point."""

    def __init__(self, file: str) -> None:
        self._file = file

    def _call(self, node: Any) -> ast.Call:
        _places.append((self._file, node.lineno))
        name = ast.Name(_PASSED, ast.Load())
        return ast.copy_location(ast.Call(name, [ast.Constant(len(_places) - 1)], []), node)

    def _begin(self, node: Any) -> Any:
        self.generic_visit(node)
        has_text = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None
        node.body.insert(has_text, ast.copy_location(ast.Expr(self._call(node)), node))
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_For = visit_AsyncFor = visit_While = _begin  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        self.generic_visit(node)
        node.body = ast.copy_location(ast.BoolOp(ast.And(), [self._call(node), node.body]), node.body)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        self.generic_visit(node)
        node.ifs.insert(0, self._call(node.target))
        return node
