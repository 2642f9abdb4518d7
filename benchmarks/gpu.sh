#!/usr/bin/env bash
# The checks that need an NVIDIA card, in one run of at most eight minutes: see docs/gpu.md.
# Needs Python 3.10 or later with torch, numpy and safetensors. PYTHON: which Python; OUT: a folder for gpu.json.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONUNBUFFERED=1
exec timeout 470 "${PYTHON:-python3}" -m benchmarks.gpu "$@"
