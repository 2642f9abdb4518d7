"""The published Qwen3-TTS models of the 12 Hz family: `Qwen/Qwen3-TTS-12Hz-…` on Hugging Face and ModelScope.

`catalog.json` beside this file holds the sizes and digests of their files at one revision each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..spec import ModelFile, Variant

LANGUAGES = (
    "chinese",
    "english",
    "french",
    "german",
    "italian",
    "japanese",
    "korean",
    "portuguese",
    "russian",
    "spanish",
)
TAGS = ("zh", "en", "fr", "de", "it", "ja", "ko", "pt", "ru", "es")
SPEAKERS = ("vivian", "serena", "uncle_fu", "dylan", "eric", "ryan", "aiden", "ono_anna", "sohee")

_CATALOG = Path(__file__).with_name("catalog.json")
_OWN_FILES = ("model.safetensors", "config.json")


def _variants() -> tuple[Variant, ...]:
    catalog = json.loads(_CATALOG.read_text(encoding="utf-8"))
    return tuple(_variant(name, model, catalog["same in all"]) for name, model in catalog["models"].items())


def _variant(name: str, model: dict[str, Any], shared: dict[str, tuple[int, str]]) -> Variant:
    repository = f"Qwen/Qwen3-TTS-12Hz-{name}"
    files = shared | {path: model[path] for path in _OWN_FILES}
    return Variant(
        id=f"Qwen3-TTS-12Hz-{name}",
        label=model["label"],
        licence="Apache-2.0",
        languages=TAGS,
        repository=repository,
        files=tuple(
            ModelFile(
                path=path,
                url=f"{repository}/resolve/{model['revision']}/{path}",
                size_bytes=size_bytes,
                sha256=sha256,
            )
            for path, (size_bytes, sha256) in files.items()
        ),
    )


VARIANTS: tuple[Variant, ...] = _variants()
