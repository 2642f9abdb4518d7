"""Published Piper voices that can be fetched: those of `rhasspy/piper-voices` on Hugging Face.

`catalog.json` beside this file holds the sizes and digests that its `voices.json` publishes, and the licences of the
training data as far as they could be confirmed. A voice's folder follows from its name, as Piper itself derives it:
`en_US-joe-medium` lies in `en/en_US/joe/medium`.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..spec import ModelFile, Variant

REPOSITORY = "rhasspy/piper-voices/resolve/main"
"""Where the files lie, relative to a Hugging Face endpoint."""
UNCONFIRMED_LICENCE = "see the voice's MODEL_CARD"

_CATALOG = Path(__file__).with_name("catalog.json")


def _variants() -> tuple[Variant, ...]:
    catalog = json.loads(_CATALOG.read_text(encoding="utf-8"))
    return tuple(
        _variant(voice, row, catalog["languages"], catalog["licences"]) for voice, row in catalog["voices"].items()
    )


def _variant(
    voice: str, row: tuple[int, str, int, str], languages: dict[str, str], licences: dict[str, str]
) -> Variant:
    locale, name, quality = voice.split("-")
    model_bytes, model_md5, config_bytes, config_md5 = row
    folder = f"{REPOSITORY}/{locale.split('_')[0]}/{locale}/{name}/{quality}"
    return Variant(
        id=voice,
        label=f"{name}, {quality}, {languages[locale]}",
        licence=licences.get(voice, UNCONFIRMED_LICENCE),
        languages=(locale.replace("_", "-"),),
        files=(
            _file(f"{voice}.onnx.json", folder, config_bytes, config_md5),
            _file(f"{voice}.onnx", folder, model_bytes, model_md5),
        ),
    )


def _file(name: str, folder: str, size_bytes: int, md5: str) -> ModelFile:
    return ModelFile(path=name, url=f"{folder}/{name}", size_bytes=size_bytes, md5=md5)


VARIANTS: tuple[Variant, ...] = _variants()
LANGUAGES: tuple[str, ...] = tuple(sorted({language for variant in VARIANTS for language in variant.languages}))
