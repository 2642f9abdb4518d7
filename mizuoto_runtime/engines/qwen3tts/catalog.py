"""The published Qwen3-TTS models of the 12 Hz family: `Qwen/Qwen3-TTS-12Hz-…` on Hugging Face and ModelScope.

The digests of their files couldn't be confirmed, so they are downloaded by hand.
"""

from __future__ import annotations

from ..spec import Variant

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
MODELS = {
    "1.7B-Base": "1.7B, cloned voices",
    "0.6B-Base": "0.6B, cloned voices",
    "1.7B-CustomVoice": "1.7B, preset voices, instructions",
    "0.6B-CustomVoice": "0.6B, preset voices",
    "1.7B-VoiceDesign": "1.7B, voices from a description",
}

VARIANTS = tuple(
    Variant(
        id=f"Qwen3-TTS-12Hz-{name}",
        label=label,
        licence="Apache-2.0",
        languages=TAGS,
        repository=f"Qwen/Qwen3-TTS-12Hz-{name}",
    )
    for name, label in MODELS.items()
)
