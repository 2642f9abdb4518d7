"""Text → ids, as Qwen's tokenizer gives them: byte-level BPE from `vocab.json` and `merges.txt`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import MissingDependency, ModelFileError
from ...text.checks import refuse_half_pairs
from ...text.panics import panics_are_errors
from ...text.qwen import cut_as_qwen
from ...weights.entries import MAX_TOKENIZER_BYTES, Entry, check_size, read_entry
from ...weights.tokens import added_token

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ROLE_IDS = 3
"""Ids of `<|im_start|>`, the role, and the line break."""
TAIL_IDS = 5
"""Ids after the text: `<|im_end|>`, a line break, and the next role."""
REFERENCE_TAIL_IDS = 2
MAX_DIGITS = 9
"""Of an id."""


@dataclass(frozen=True)
class TextIds:
    """A text's ids. role: what stands before it; ids: the text alone."""

    role: tuple[int, ...]
    ids: tuple[int, ...]


class TextTokenizer:
    """Gives ids of whole prompts. ids: of the special tokens, by name."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; special tokens in it count as such. InputError for half a surrogate pair."""
        refuse_half_pairs(text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def spoken(self, text: str) -> TextIds:
        """Of what is to be said."""
        ids = self.encode(f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n")
        return TextIds(tuple(ids[:ROLE_IDS]), tuple(ids[ROLE_IDS:-TAIL_IDS]))

    def reference(self, text: str) -> tuple[int, ...]:
        """Of what a reference says."""
        ids = self.encode(f"<|im_start|>assistant\n{text}<|im_end|>\n")
        return tuple(ids[ROLE_IDS:-REFERENCE_TAIL_IDS])

    def instruction(self, text: str) -> tuple[int, ...]:
        """Of how it is to be said; () if `text` is empty."""
        return tuple(self.encode(f"<|im_start|>user\n{text}<|im_end|>\n")) if text else ()


def load_tokenizer(folder: Path) -> TextTokenizer:
    """The tokenizer of the model in `folder`. ModelFileError names the file that is missing or wrong."""
    try:
        from tokenizers import Tokenizer, models
    except ImportError as error:
        raise MissingDependency("Qwen3-TTS needs the package tokenizers: pip install tokenizers") from error
    vocab, merges = folder / "vocab.json", folder / "merges.txt"
    for path in (vocab, merges):
        if not path.is_file():
            raise ModelFileError(f"{path}: there is no such file; a Qwen3-TTS model needs it, download it again")
        check_size(path, MAX_TOKENIZER_BYTES)
    settings = read_entry(folder / "tokenizer_config.json")
    try:
        with panics_are_errors():
            tokenizer = Tokenizer(models.BPE.from_file(str(vocab), str(merges)))
    except Exception as error:  # the library raises plain ones
        raise ModelFileError(f"{vocab}: not the vocabulary of {merges.name} ({error}); download both again") from error
    _check_merges(tokenizer.get_vocab(with_added_tokens=False), merges, settings)
    cut_as_qwen(tokenizer)
    for token_id, entry in _added(settings):
        token = added_token(entry)
        tokenizer.add_special_tokens([token]) if token.special else tokenizer.add_tokens([token])
        if tokenizer.token_to_id(token.content) != token_id:
            found = tokenizer.token_to_id(token.content)
            raise entry.error("content", f"{token.content!r} has the id {found:,}; this model needs {token_id:,}")
    return TextTokenizer(tokenizer)


def _check_merges(vocab: dict[str, int], path: Path, settings: Entry) -> None:
    """The vocabulary's last token comes of the last merge, so a file that ends early doesn't make it."""
    added = {entry.text("content") for _, entry in _added(settings)}
    last = max((token for token in vocab if len(token) > 1 and token not in added), key=vocab.__getitem__, default="")
    lines = path.read_text(encoding="utf-8").split("\n")
    if last and all(line.strip("\r").replace(" ", "") != last for line in reversed(lines)):
        raise ModelFileError(f"{path}: ends before the merge that makes {last!r}; it is truncated, download it again")


def _added(settings: Entry) -> list[tuple[int, Entry]]:
    """The tokens beside the vocabulary, in the order of their ids."""
    added = settings.entry("added_tokens_decoder")
    wrong = next((key for key in added.content if not key.isdecimal() or len(key) > MAX_DIGITS), None)
    if wrong is not None:
        raise added.error(wrong, "is no id")
    return sorted((int(key), added.entry(key)) for key in added.content)
