"""Text → ids, as upstream's tokenizer gives them: BPE over whole texts, Chinese character by character, no BOS.

The files are a Llama tokenizer's; what is made of them is what transformers 5.24 makes of them, after its outputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import MissingDependency, ModelFileError, ModelNotFound
from ...text.checks import refuse_half_pairs
from ...text.panics import panics_are_errors
from ...weights.entries import MAX_TOKENIZER_BYTES, Entry, read_entry

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
MAX_DIGITS = 9
"""Of an id; Python refuses to read numbers of thousands of digits."""
AUDIO_START = 101
REFERENCE_START, REFERENCE_END = 103, 104
SPACE = "▁"
NAMED = ("unk_token", "bos_token", "eos_token")
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True)
class TextTokenizer:
    """Gives the ids of texts. split: pieces of several Chinese characters, which are read one by one.

    unknown: the id of what isn't in the vocabulary.
    """

    tokenizer: Tokenizer
    split: frozenset[str]
    unknown: int

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; special tokens in it count as such. InputError for half a surrogate pair."""
        refuse_half_pairs(text)
        pieces: Sequence[str] = self.tokenizer.encode(text, add_special_tokens=False).tokens
        return [self._id(piece) for piece in self._single(pieces)]

    def _single(self, pieces: Sequence[str]) -> Iterator[str]:
        for piece in pieces:
            bare = piece.replace(SPACE, "")
            yield from bare if bare in self.split else (piece,)

    def _id(self, piece: str) -> int:
        found: int | None = self.tokenizer.token_to_id(piece)
        return self.unknown if found is None else found


def spaced(text: str) -> str:
    """As upstream's wrapper takes a text: each run of spaces and line breaks is one space; those at the ends stay."""
    return _SPACES.sub(" ", text)


def described(text: str, control: str) -> str:
    """A text with a description of how to say it before it, as upstream's command line puts them together."""
    control = control.strip()
    return f"({control}){text}" if control else text


def load_tokenizer(folder: Path, vocab: int) -> TextTokenizer:
    """The tokenizer of the model in `folder`, which knows `vocab` ids.

    ModelNotFound or ModelFileError name the file that is missing or wrong.
    """
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers
    except ImportError as error:
        raise MissingDependency("VoxCPM needs the package tokenizers: pip install tokenizers") from error
    for name in (TOKENIZER, SETTINGS):
        if not (folder / name).is_file():
            raise ModelNotFound(f"{folder / name}: there is no such file; download the model again")
    whole = read_entry(folder / TOKENIZER, most_bytes=MAX_TOKENIZER_BYTES)
    settings = read_entry(folder / SETTINGS)
    model = whole.entry("model")
    model.only("type", None, "BPE")
    ids, merges = _vocabulary(model, vocab), _merges(model)
    try:
        with panics_are_errors():
            bpe = models.BPE(vocab=ids, merges=merges, fuse_unk=True, byte_fallback=True)
    except Exception as error:  # the library raises plain ones
        raise model.error("merges", f"don't fit the vocabulary ({error}); download the file again") from error
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, prepend_scheme=_prepending(settings), split=False)
    tokenizer.add_tokens(list(_added(whole, settings)))
    names = tokenizer.get_vocab(with_added_tokens=True)
    _check_ids(names, vocab, whole)
    unknown = names.get(_named(settings, "unk_token", "<unk>"), 0)
    return TextTokenizer(tokenizer, frozenset(filter(_is_chinese, names)), unknown)


def _is_chinese(piece: str) -> bool:
    return len(piece) >= 2 and all("\u4e00" <= char <= "\u9fff" for char in piece)


def _prepending(settings: Entry) -> str:
    """Where a space is put before: each part of a text between special tokens, the first one only, or nowhere."""
    if not settings.flag("add_prefix_space", True):
        return "never"
    return "always" if settings.flag("legacy", False) else "first"


def _vocabulary(model: Entry, vocab: int) -> dict[str, int]:
    ids: Any = model.get("vocab", None)
    if not isinstance(ids, dict) or not ids or any(type(value) is not int for value in ids.values()):
        raise model.error("vocab", "must be an object that gives each token its id; download the file again")
    if min(ids.values()) < 0 or max(ids.values()) >= vocab:
        raise model.error("vocab", f"has ids {min(ids.values())} to {max(ids.values())}; the model knows {vocab:,}")
    return ids


def _merges(model: Entry) -> list[tuple[str, str]]:
    """Each is a text with a space between, or a pair."""
    merges: Any = model.get("merges", None)
    if not isinstance(merges, list):
        raise model.error("merges", "must be a list; download the file again")
    pairs = [tuple(merge.split(" ")) if isinstance(merge, str) else merge for merge in merges]
    wrong = next((pair for pair in pairs if not _is_pair(pair)), None)
    if wrong is not None:
        raise model.error("merges", f"hold {wrong!r}, which is no pair; download the file again")
    return [(first, second) for first, second in pairs]


def _is_pair(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _added(whole: Entry, settings: Entry) -> Iterator[AddedToken]:
    """The tokens that are found in texts as they stand, in the order of their ids; those with a name come last."""
    from tokenizers import AddedToken

    known = set()
    for entry in _added_entries(whole, settings):
        content = entry.text("content")
        known.add(content)
        special = entry.flag("special", False)
        yield AddedToken(
            content,
            single_word=entry.flag("single_word", False),
            lstrip=entry.flag("lstrip", False),
            rstrip=entry.flag("rstrip", False),
            normalized=entry.flag("normalized", not special),
            special=special,
        )
    for name, default in zip(NAMED, ("<unk>", "<s>", "</s>"), strict=True):
        content = _named(settings, name, default)
        if content and content not in known:
            known.add(content)
            yield AddedToken(content, special=True)


def _added_entries(whole: Entry, settings: Entry) -> list[Entry]:
    if settings.has("added_tokens_decoder"):
        added = settings.entry("added_tokens_decoder")
        wrong = next((key for key in added.content if not key.isdecimal() or len(key) > MAX_DIGITS), None)
        if wrong is not None:
            raise added.error(wrong, "is no id")
        return [added.entry(key) for key in sorted(added.content, key=int)]
    tokens: Any = whole.get("added_tokens", [])
    if not isinstance(tokens, list):
        raise whole.error("added_tokens", "must be a list; download the file again")
    entries = [Entry(token, whole.source, f"added_tokens.{index}") for index, token in enumerate(tokens)]
    return sorted(entries, key=lambda entry: entry.integer("id", 0, 1 << 24))


def _named(settings: Entry, name: str, default: str) -> str:
    """A token that has a name: its content, or an object that holds it."""
    value: Any = settings.get(name, default)
    return settings.entry(name).text("content") if isinstance(value, dict) else settings.text(name, default)


def _check_ids(names: dict[str, int], vocab: int, whole: Entry) -> None:
    highest = max(names.values())
    if highest >= vocab:
        raise ModelFileError(
            f"{whole.source}: with its added tokens it has ids up to {highest:,}, the model knows {vocab:,}; they "
            "belong to different models"
        )
