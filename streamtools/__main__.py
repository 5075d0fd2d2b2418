"""`python -m streamtools` is the command `streamtools`."""

from __future__ import annotations

import sys

from streamtools.apps.cli import main

if __name__ == "__main__":
    sys.exit(main())
