"""The published OmniVoice model: `k2-fsa/OmniVoice` on Hugging Face and ModelScope.

The digests of its files couldn't be confirmed, so it is downloaded by hand.
"""

from __future__ import annotations

from ..spec import Variant
from .languages import language_tags

LICENCE = "CC-BY-NC; its audio tokenizer: Higgs Audio 2 Community License"
TAGS = language_tags()

VARIANTS = (
    Variant(
        id="OmniVoice",
        label="OmniVoice, 0.6B",
        licence=LICENCE,
        languages=TAGS,
        repository="k2-fsa/OmniVoice",
    ),
)
