"""What a Qwen3-TTS model says of itself in `config.json` and `generation_config.json`, checked.

Format: `configuration_qwen3_tts.py` of qwen-tts 0.1.1, whose defaults stand here too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal, cast

from ...errors import InputError, UnknownName
from ...lm.decoder import ACTIVATIONS, DecoderConfig
from ...lm.sampling import Sampling
from ...weights.entries import Entry, read_entry

ModelType = Literal["base", "custom_voice", "voice_design"]
MODEL_TYPES = ("base", "custom_voice", "voice_design")
AUTO = "auto"
DIALECT = "dialect"
LARGEST_ID = 1 << 24
SUPPRESSED = 1024
"""So many ids at the end of the talker's vocabulary are never spoken, but for the end."""


@dataclass(frozen=True, kw_only=True)
class CodecIds:
    """Rows of the codec embedding that steer the talker."""

    pad: int
    bos: int
    eos: int
    think: int
    nothink: int
    think_bos: int
    think_eos: int


@dataclass(frozen=True, kw_only=True)
class TalkerConfig:
    """vocab: code 0 and what steers; text_vocab, text_width: the text embedding. groups: codes of a frame."""

    decoder: DecoderConfig
    predictor: DecoderConfig
    vocab: int
    predictor_vocab: int
    groups: int
    text_vocab: int
    text_width: int
    ids: CodecIds
    languages: Mapping[str, int]
    speakers: Mapping[str, int]
    dialects: Mapping[str, str]

    @property
    def width(self) -> int:
        return self.decoder.width

    @property
    def spoken_languages(self) -> tuple[str, ...]:
        """Names that a request may give; dialects come with their speaker only."""
        return (AUTO, *(name for name in self.languages if DIALECT not in name))


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How codes are chosen, and when to stop. max_new_tokens: most codes 0, one more than frames."""

    talker: Sampling
    predictor: Sampling
    repetition_penalty: float
    max_new_tokens: int


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """What a request or a file says of generation, under upstream's names; None: nothing."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    subtalker_dosample: bool | None = None
    subtalker_temperature: float | None = None
    subtalker_top_k: int | None = None
    subtalker_top_p: float | None = None
    max_new_tokens: int | None = None

    def or_else(self, others: GenerationOptions) -> GenerationOptions:
        """These, and of `others` what isn't said here."""
        missing = {
            field.name: getattr(others, field.name) for field in fields(self) if getattr(self, field.name) is None
        }
        return replace(self, **missing)

    def resolved(self) -> Generation:
        """With upstream's own defaults for the rest."""
        whole = self.or_else(DEFAULTS)
        values = {field.name: getattr(whole, field.name) for field in fields(whole)}
        return Generation(
            talker=Sampling(**{_TALKER[name]: value for name, value in values.items() if name in _TALKER}),
            predictor=Sampling(**{_PREDICTOR[name]: value for name, value in values.items() if name in _PREDICTOR}),
            repetition_penalty=values["repetition_penalty"],
            max_new_tokens=values["max_new_tokens"],
        )


DEFAULTS = GenerationOptions(
    do_sample=True,
    temperature=0.9,
    top_k=50,
    top_p=1.0,
    repetition_penalty=1.05,
    subtalker_dosample=True,
    subtalker_temperature=0.9,
    subtalker_top_k=50,
    subtalker_top_p=1.0,
    max_new_tokens=2048,
)
_TALKER = {"do_sample": "sample", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p"}
_NUMBERS = ("temperature", "top_p", "repetition_penalty", "subtalker_temperature", "subtalker_top_p")
_COUNTS = {"top_k": 0, "subtalker_top_k": 0, "max_new_tokens": 2}
_PREDICTOR = {f"subtalker_{name.replace('do_sample', 'dosample')}": target for name, target in _TALKER.items()}


@dataclass(frozen=True, kw_only=True)
class Qwen3TtsConfig:
    """A model's own description. text_ids: tts_pad, tts_bos and tts_eos. generation: its `generation_config.json`."""

    model_type: ModelType
    model_size: str
    talker: TalkerConfig
    tts_pad: int
    tts_bos: int
    tts_eos: int
    speaker_rate_hz: int
    generation: GenerationOptions

    @property
    def takes_style(self) -> bool:
        """Whether an instruction has any effect: upstream drops it for the small model with preset speakers."""
        return self.model_type != "base" and not (self.model_type == "custom_voice" and self.model_size in "0b6")

    def language(self, name: str) -> str:
        """The language's own name; names are case-insensitive. UnknownName lists the known ones."""
        if name.lower() not in self.talker.spoken_languages:
            raise UnknownName("language", name, self.talker.spoken_languages)
        return name.lower()

    def speaker(self, name: str) -> str:
        """The speaker's own name; names are case-insensitive. UnknownName lists the known ones."""
        if not self.talker.speakers:
            raise InputError("this model has no preset speakers; choose a CustomVoice model")
        if name.lower() not in self.talker.speakers:
            raise UnknownName("speaker", name, self.talker.speakers)
        return name.lower()


def read_config(folder: Path) -> Qwen3TtsConfig:
    """The description of the model in `folder`. ModelFileError names the file and the entry that is wrong."""
    root = read_entry(folder / "config.json")
    root.only("model_type", None, "qwen3_tts")
    kind = root.only("tts_model_type", None, *MODEL_TYPES)
    talker = _talker(root.entry("talker_config"))
    speaker_encoder = root.entry("speaker_encoder_config") if root.has("speaker_encoder_config") else None
    if kind == "base" and speaker_encoder is None:
        raise root.error("speaker_encoder_config", "is missing; a base model needs it")
    text_ids = {
        name: root.integer(f"tts_{name}_token_id", 0, talker.text_vocab - 1, default)
        for name, default in (("pad", 151671), ("bos", 151672), ("eos", 151673))
    }
    return Qwen3TtsConfig(
        model_type=cast(ModelType, kind),
        model_size=root.text("tts_model_size", ""),
        talker=talker,
        tts_pad=text_ids["pad"],
        tts_bos=text_ids["bos"],
        tts_eos=text_ids["eos"],
        speaker_rate_hz=speaker_encoder.integer("sample_rate", 1000, 384_000, 24_000) if speaker_encoder else 24_000,
        generation=_generation(folder / "generation_config.json"),
    )


def _talker(talker: Entry) -> TalkerConfig:
    predictor = talker.entry("code_predictor_config")
    vocab = talker.integer("vocab_size", 2, LARGEST_ID, 3072)
    groups = talker.integer("num_code_groups", 2, 256, 32)
    if predictor.integer("num_code_groups", 2, 256, 32) != groups:
        raise predictor.error("num_code_groups", f"must be {groups}, as the talker's")
    return TalkerConfig(
        decoder=_decoder(talker, kv_heads=2, head_dim=0),
        predictor=_decoder(predictor, kv_heads=8, head_dim=128),
        vocab=vocab,
        predictor_vocab=predictor.integer("vocab_size", 2, LARGEST_ID, 2048),
        groups=groups,
        text_vocab=talker.integer("text_vocab_size", 2, LARGEST_ID, 151936),
        text_width=talker.integer("text_hidden_size", 1, 1 << 20, 2048),
        ids=_codec_ids(talker, vocab),
        languages=_ids(talker, "codec_language_id", vocab),
        speakers=_ids(talker, "spk_id", vocab),
        dialects=_dialects(talker),
    )


def _decoder(entries: Entry, *, kv_heads: int, head_dim: int) -> DecoderConfig:
    width = entries.integer("hidden_size", 1, 1 << 20)
    heads = entries.integer("num_attention_heads", 1, 4096, 16)
    shared = entries.integer("num_key_value_heads", 1, 4096, kv_heads)
    if heads % shared:
        raise entries.error("num_attention_heads", f"is {heads}, which {shared} key heads can't serve evenly")
    _check_rope(entries)
    layers = entries.integer("num_hidden_layers", 1, 1024)
    return DecoderConfig(
        width=width,
        inner=entries.integer("intermediate_size", 1, 1 << 20),
        layers=layers,
        heads=heads,
        kv_heads=shared,
        head_dim=entries.integer("head_dim", 2, 4096, head_dim or width // heads),
        norm_eps=entries.number("rms_norm_eps", 1e-6),
        rope_theta=entries.number("rope_theta", 10_000),
        activation=entries.only("hidden_act", "silu", *ACTIVATIONS),
        attention_bias=entries.flag("attention_bias", False),
        windows=_windows(entries, layers),
    )


def _windows(entries: Entry, layers: int) -> tuple[int, ...]:
    """How far each layer sees: upstream's code predictor names its layers' types, its talker has one window for all."""
    if not entries.flag("use_sliding_window", False):
        return ()
    window = entries.integer("sliding_window", 1, LARGEST_ID, 4096)
    if not entries.has("layer_types") and not entries.has("max_window_layers"):
        return (window,) * layers
    types = entries.content.get("layer_types")
    if not isinstance(types, list):
        first = entries.integer("max_window_layers", 0, 1024)
        return tuple(window if layer >= first else 0 for layer in range(layers))
    if len(types) != layers:
        raise entries.error("layer_types", f"names {len(types)} layers of {layers}")
    return tuple(window if kind == "sliding_attention" else 0 for kind in types)


def _check_rope(entries: Entry) -> None:
    """Three equal position axes are ordinary rotary positions; other kinds of scaling are unknown here."""
    if entries.has("rope_scaling"):
        scaling = entries.entry("rope_scaling")
        scaling.only("rope_type" if scaling.has("rope_type") else "type", "default", "default", "mrope")


def _codec_ids(talker: Entry, vocab: int) -> CodecIds:
    def row(name: str, key: str = "") -> int:
        return talker.integer(key or f"codec_{name}_id", 0, vocab - 1)

    return CodecIds(
        pad=row("pad"),
        bos=row("bos"),
        eos=row("eos", "codec_eos_token_id"),
        think=row("think"),
        nothink=row("nothink"),
        think_bos=row("think_bos"),
        think_eos=row("think_eos"),
    )


def _ids(talker: Entry, name: str, vocab: int) -> dict[str, int]:
    if not talker.has(name):
        return {}
    entries = talker.entry(name)
    return {key.lower(): entries.integer(key, 0, vocab - 1) for key in entries.content}


def _dialects(talker: Entry) -> dict[str, str]:
    """Speaker → the dialect that it speaks; only those that speak one."""
    if not talker.has("spk_is_dialect"):
        return {}
    entries = talker.entry("spk_is_dialect")
    spoken = {key.lower(): entries.text(key) for key, value in entries.content.items() if value}
    languages = talker.entry("codec_language_id").content if spoken else {}
    for speaker, dialect in spoken.items():
        if dialect not in languages:
            raise entries.error(speaker, f"is {dialect!r}, which codec_language_id lacks")
    return spoken


def _generation(path: Path) -> GenerationOptions:
    if not path.exists():
        return GenerationOptions()
    entries = read_entry(path)
    numbers = {
        name: entries.number(name, 1.0) for name in _NUMBERS if entries.has(name)
    }
    counts = {name: entries.integer(name, low, LARGEST_ID) for name, low in _COUNTS.items() if entries.has(name)}
    flags = {name: entries.flag(name, True) for name in ("do_sample", "subtalker_dosample") if entries.has(name)}
    return GenerationOptions(**numbers, **counts, **flags)  # type: ignore[arg-type]
