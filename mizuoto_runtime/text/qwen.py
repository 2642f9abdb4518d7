"""How Qwen's tokenizers cut a text into pieces, as transformers gives it to Qwen2Tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def cut_as_qwen(tokenizer: Tokenizer, *, prefix_space: bool = False) -> None:
    """Let a byte-level BPE `tokenizer` take its pieces, and the normal form of texts, as Qwen's do: by no chance, and
    without a token for what isn't known. prefix_space: whether each part of a text begins with one.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    model = tokenizer.model
    model.dropout, model.unk_token, model.fuse_unk, model.byte_fallback = None, None, False, False
    tokenizer.model = model
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
