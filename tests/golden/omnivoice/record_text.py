"""Writes what upstream's functions for texts give: cleaning, tags, durations, chunks, languages, attributes.

Run in an environment with omnivoice 0.2.1, WeTextProcessing 1.2.0 and num2words, from the repository's root:

    python -m tests.golden.omnivoice.record_text
"""

from __future__ import annotations

import argparse
import json
from importlib import metadata
from pathlib import Path
from typing import Any

from omnivoice.models import omnivoice as upstream
from omnivoice.utils.duration import RuleDurationEstimator
from omnivoice.utils.text import add_punctuation, chunk_text_punctuation, normalize_text
from omnivoice.utils.voice_design import _ZH_RE

from tests.golden.omnivoice.text_cases import (
    CHUNK_CHARS,
    INSTRUCT_TEXTS,
    INSTRUCTS,
    LANGUAGES,
    NORMALISED,
    PACES,
    TEXTS,
)

FOLDER = Path(__file__).parent


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    recorded = {
        "versions": {name: metadata.version(name) for name in ("omnivoice", "WeTextProcessing", "num2words")},
        "cleaned": [[text, said, upstream._combine_text(text, said)] for text in TEXTS for said in ("", " a 世 ")],
        "ended": [[text, add_punctuation(text)] for text in TEXTS],
        "chunks": [[text, most, chunk_text_punctuation(text, most, 3)] for text in TEXTS for most in CHUNK_CHARS],
        "frames": [frames(*pace, text, speed) for pace in PACES for text in TEXTS for speed in (1.0, 0.7, 3.0)],
        "languages": [[language, upstream._resolve_language(language)] for language in LANGUAGES],
        "normalised": [[text, language, normalize_text(text, language or None)] for text, language in NORMALISED],
        "instructs": [instruct(given, text) for given in INSTRUCTS for text in INSTRUCT_TEXTS],
    }
    text = json.dumps(recorded, ensure_ascii=True, indent=0)
    (FOLDER / "text.json").write_text(text + "\n", encoding="utf-8")


def frames(said: str, count: int, text: str, speed: float) -> list[Any]:
    """Upstream's own rounding, on an object that has nothing but the estimator."""

    class Model:
        duration_estimator = RuleDurationEstimator()

    return [said, count, text, speed, upstream.OmniVoice._estimate_target_tokens(Model, text, said, count, speed)]


def instruct(given: str, text: str) -> list[Any]:
    """None: refused."""
    try:
        return [given, text, upstream._resolve_instruct(given, use_zh=bool(_ZH_RE.search(text))) or ""]
    except ValueError:
        return [given, text, None]


if __name__ == "__main__":
    main()
