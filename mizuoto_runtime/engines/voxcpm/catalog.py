"""The published VoxCPM models: `openbmb/…` on Hugging Face, `OpenBMB/…` on ModelScope.

The digests of their files couldn't be confirmed, so they are downloaded by hand.
"""

from __future__ import annotations

from ..spec import Variant

LICENCE = "Apache-2.0"
CHINESE_ENGLISH = ("zh", "en")
TAGS = (
    *CHINESE_ENGLISH,
    *("ar", "my", "da", "nl", "fi", "fr", "de", "el", "he", "hi", "id", "it", "ja", "km", "ko", "lo", "ms", "no"),
    *("pl", "pt", "ru", "es", "sw", "sv", "tl", "th", "tr", "vi"),
)
MODELS = {
    "VoxCPM2": ("VoxCPM 2, 2B, 48 kHz: references, descriptions, 30 languages", TAGS),
    "VoxCPM1.5": ("VoxCPM 1.5, 0.8B, 44.1 kHz", CHINESE_ENGLISH),
    "VoxCPM-0.5B": ("VoxCPM 0.5B, 16 kHz", CHINESE_ENGLISH),
}

VARIANTS = tuple(
    Variant(id=name, label=label, licence=LICENCE, languages=languages, repository=f"openbmb/{name}")
    for name, (label, languages) in MODELS.items()
)
