"""Where the developer tools keep what they make. All of it is ignored by git and safe to delete."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STATE = ROOT / ".comfyui"
BASE = STATE / "base"
LOGS = STATE / "logs"
REQUIREMENTS = ROOT / "devtools" / "requirements"
