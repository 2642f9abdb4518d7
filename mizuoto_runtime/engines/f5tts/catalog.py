"""The published F5-TTS and E2-TTS models: `SWivid/F5-TTS` and `SWivid/E2-TTS` on Hugging Face and ModelScope.

The digests of their files couldn't be confirmed, so they are downloaded by hand.
"""

from __future__ import annotations

from ..spec import Variant

TAGS = ("zh", "en")
LICENCE = "CC-BY-NC-4.0"
MODELS = {
    "F5TTS_v1_Base": ("F5-TTS v1, 337M", "SWivid/F5-TTS"),
    "F5TTS_Base": ("F5-TTS, 336M", "SWivid/F5-TTS"),
    "E2TTS_Base": ("E2-TTS, 333M", "SWivid/E2-TTS"),
}

VARIANTS = tuple(
    Variant(id=name, label=label, licence=LICENCE, languages=TAGS, repository=f"{repository} (its folder {name})")
    for name, (label, repository) in MODELS.items()
)
