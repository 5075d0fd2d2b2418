"""httpx or httpx2: whose request is it, and what does that library make responses, streams and errors of?

Both have the same names. Neither is imported here: who asks has imported it.
"""

from __future__ import annotations

import sys
from types import ModuleType


def library_of(request: object) -> ModuleType:
    """Return the library of an HTTP request; raise TypeError for what is none."""
    for kind in type(request).__mro__:
        library = sys.modules.get(kind.__module__.partition(".")[0])
        if library is not None and hasattr(library, "AsyncByteStream"):
            return library
    raise TypeError(f"{type(request)!r} is no request of httpx or httpx2")
