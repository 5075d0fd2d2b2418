"""`outputs.asgi` without the extra `web`."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["starlette"] = None  # as if it were not installed
from streamtools import outputs
try:
    from streamtools.outputs import asgi
except ImportError as error:
    print(error.name, error, sep=": ")
print(outputs.native().content_type)
"""


def test_the_import_names_the_extra() -> None:
    """The encoders work without it."""
    shown = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    expected = 'starlette: streamtools.outputs.asgi needs starlette: pip install "streamtools[web]"'
    assert [expected, "text/event-stream"] == shown.stdout.splitlines()
