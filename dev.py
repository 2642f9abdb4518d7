"""Developer entry point: python3 dev.py demo | test | comfyui (see README.md)."""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):  # noqa: UP036 - an older interpreter has to be told so
    found = ".".join(map(str, sys.version_info[:2]))
    sys.exit(f"error: Python 3.10 or newer is needed, this is {found}; run dev.py with a newer python3")

from devtools.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
