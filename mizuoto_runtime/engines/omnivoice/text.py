"""Text → ids, as OmniVoice reads it: cleaned, with tags for sounds that aren't words, by Qwen's tokenizer.

Cleaning and the tags are those of omnivoice 0.2.1 (`_combine_text` and `_tokenize_with_nonverbal_tags`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import MissingDependency, ModelFileError
from ...text.checks import refuse_half_pairs
from ...text.panics import panics_are_errors
from ...text.qwen import cut_as_qwen
from ...weights.entries import MAX_TOKENIZER_BYTES, Entry, check_size, read_entry
from ...weights.tokens import added_token

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
UNNAMED = ("extra_special_tokens", "additional_special_tokens")
"""Where settings name special tokens, in the order in which those that the tokenizer lacks get ids."""
MARKS = (
    "<|denoise|>",
    "<|lang_start|>",
    "<|lang_end|>",
    "<|instruct_start|>",
    "<|instruct_end|>",
    "<|text_start|>",
    "<|text_end|>",
)
"""Tokens between the parts of a prompt."""
TAGS = (
    "laughter",
    "sigh",
    "confirmation-en",
    "question-en",
    "question-ah",
    "question-oh",
    "question-ei",
    "question-yi",
    "surprise-ah",
    "surprise-oh",
    "surprise-wa",
    "surprise-yo",
    "dissatisfaction-hnn",
)
NOTHING = "None"
"""What the model reads where no language, or no instruction, is given."""
_TAG = re.compile(rf"(\[(?:{'|'.join(TAGS)})\])")
_BESIDE_IDEOGRAPHS = re.compile("(?<=[\u4e00-\u9fff])\\s+|\\s+(?=[\u4e00-\u9fff])")
_ENDS = frozenset(";:,.!?…)]}\"'“”‘’；：，。！？、）】")


class TextTokenizer:
    """Gives ids of the parts of prompts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def style(self, language: str, instruction: str, *, denoise: bool) -> list[int]:
        """Of what stands before the text. language: an id; "" for none, as for the instruction."""
        before = "<|denoise|>" if denoise else ""
        return self._encode(
            f"{before}<|lang_start|>{language or NOTHING}<|lang_end|>"
            f"<|instruct_start|>{instruction or NOTHING}<|instruct_end|>"
        )

    def spoken(self, text: str) -> list[int]:
        """Of a cleaned text; each tag in it is read alone, so that its ids don't depend on what is around."""
        pieces = _TAG.split(f"<|text_start|>{text}<|text_end|>")
        return [token for piece in pieces if piece for token in self._encode(piece, framed=False)]

    def _encode(self, text: str, *, framed: bool = True) -> list[int]:
        """framed: with what the tokenizer puts around a text, which Qwen's doesn't."""
        refuse_half_pairs(text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=framed).ids
        return ids


def clean_text(text: str, reference_text: str = "") -> str:
    """The reference's text and the text to speak in one line, with no space beside ideographs."""
    joined = f"{reference_text.strip()} {text.strip()}" if reference_text else text.strip()
    joined = re.sub(r"[\r\n]+", "", joined).replace("（", "(").replace("）", ")")
    return _BESIDE_IDEOGRAPHS.sub("", re.sub(r"[ \t]+", " ", joined))


def finish_reference_text(text: str) -> str:
    """Stripped, and ended with a full stop of its script if it doesn't end with a mark."""
    text = text.strip()
    if not text or text[-1] in _ENDS:
        return text
    return text + ("。" if re.search("[\u4e00-\u9fff]", text) else ".")


def load_tokenizer(folder: Path, text_vocab: int) -> TextTokenizer:
    """The tokenizer of the model in `folder`. text_vocab: how many ids the model knows. ModelFileError names the file
    that is missing or wrong."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingDependency("OmniVoice needs the package tokenizers: pip install tokenizers") from error
    path = folder / TOKENIZER
    if not path.is_file():
        raise ModelFileError(f"{path}: there is no such file; an OmniVoice model needs it, download it again")
    check_size(path, MAX_TOKENIZER_BYTES)
    try:
        with panics_are_errors():
            tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain ones
        raise ModelFileError(f"{path}: no tokenizer, or truncated ({error}); download it again") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if (folder / SETTINGS).is_file():
        settings = read_entry(folder / SETTINGS)
        if settings.text("tokenizer_class", "").startswith("Qwen2Tokenizer"):
            cut_as_qwen(tokenizer, prefix_space=settings.flag("add_prefix_space", False))
        lacking = [token for token in _configured(settings) if tokenizer.token_to_id(token.content) is None]
        tokenizer.add_tokens(lacking[: max(0, text_vocab - tokenizer.get_vocab_size())])
    _check_ids(tokenizer, path, text_vocab)
    return TextTokenizer(tokenizer)


def _configured(settings: Entry) -> Iterator[AddedToken]:
    """The special tokens that the settings name, those with an id first, in its order."""
    by_id = settings.entry("added_tokens_decoder")
    for key in sorted(by_id.content, key=lambda key: (len(key), key)):
        yield added_token(by_id.entry(key))
    found = [settings.get(name, None) for name in NAMED]
    for name in UNNAMED:
        others = settings.get(name, [])
        found += others.values() if isinstance(others, dict) else others if isinstance(others, list) else [others]
    for token in found:
        if token is not None:
            yield added_token(Entry({"content": token} if isinstance(token, str) else token, settings.source))


def _check_ids(tokenizer: Tokenizer, path: Path, text_vocab: int) -> None:
    missing = [mark for mark in MARKS if tokenizer.token_to_id(mark) is None]
    if missing:
        raise ModelFileError(f"{path}: lacks the token {missing[0]}; it is another model's")
    highest = max(tokenizer.get_vocab(with_added_tokens=True).values())
    if highest >= text_vocab:
        raise ModelFileError(
            f"{path}: has the id {highest:,}, but by config.json the model knows {text_vocab:,}; "
            "they belong to different models"
        )
