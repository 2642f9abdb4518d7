"""Voices and their files, options, long and endless texts, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mizuoto_runtime.engines.qwen3tts.config import GenerationOptions, read_config
from mizuoto_runtime.engines.qwen3tts.estimates import most_tokens
from mizuoto_runtime.engines.qwen3tts.generate import Writer
from mizuoto_runtime.engines.qwen3tts.prompt import Request, build_prompt
from mizuoto_runtime.engines.qwen3tts.speech import split_text
from mizuoto_runtime.engines.qwen3tts.text import load_tokenizer
from mizuoto_runtime.engines.qwen3tts.voices import Voice, load_voice, save_voice
from mizuoto_runtime.engines.qwen3tts.weights import load_modules
from mizuoto_runtime.errors import InputError, ModelFileError, NotFinite, UnknownName
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.lm.cache import CacheKind, peak_bytes, position_bytes
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Artifact, Audio, Output
from tests.engines.damage import WRONG, damage
from tests.golden.qwen3tts.checkpoint import reference_sound, write_checkpoint
from tests.memory.live_bytes import LiveBytes

REFERENCE = Audio(reference_sound(8_000, 4)[None], 24_000)


def speak(session: Session, model: str, text: str = "Hi.", **options: object) -> Output:
    inputs = {name: options.pop(name) for name in ("reference", "reference_text", "voice") if name in options}
    options.setdefault("max_new_tokens", 5)
    files = session.find("qwen3tts", model)
    return session.speak(files, SpeakRequest(text=text, seed=1, inputs=inputs, options=options))


def voice_of(session: Session, model: str, phase: str, inputs: dict[str, object], **options: object) -> Artifact:
    return session.run_phase(session.find("qwen3tts", model), phase, inputs, options)[0]


def test_a_saved_voice_is_the_same_voice(session: Session) -> None:
    inputs = {"reference": REFERENCE, "reference_text": "Hello, 世界."}
    voice = voice_of(session, "base-small", "voice_from_audio", inputs)
    voice_of(session, "base-small", "save_voice", {"voice": voice}, save_voice_as="Ann 1")
    loaded = voice_of(session, "base-small", "load_voice", {}, voice_file="Ann 1").value
    assert isinstance(loaded, Voice) and isinstance(voice.value, Voice)
    assert torch.equal(loaded.x_vector, voice.value.x_vector) and torch.equal(loaded.codes, voice.value.codes)
    assert loaded.text == "Hello, 世界."
    direct = speak(session, "base-small", reference=REFERENCE, reference_text="Hello, 世界.")
    assert torch.equal(speak(session, "base-small", voice_file="Ann 1").audio.samples, direct.audio.samples)
    with pytest.raises(InputError, match=r"made by a model of width 24, this one's is 40"):
        speak(session, "base-large", voice_file="Ann 1")
    with pytest.raises(InputError, match="for a Base model"):
        speak(session, "custom-small", voice_file="Ann 1")


def test_a_voice_can_be_saved_on_the_way(session: Session, root: Path) -> None:
    output = speak(session, "custom-small", speaker="Vivian", save_voice_as="viv")
    assert output.meta["applied"] == {"voice_file": str(root / "qwen3tts" / "voices" / "viv.json")}
    assert torch.equal(speak(session, "custom-small", voice_file="viv").audio.samples, output.audio.samples)


@pytest.mark.parametrize("name", ["", "../out", "a/b", "a\\b", ".hidden", "con:", "x" * 65, "end "])
def test_a_voices_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is no name for a voice"):
        save_voice(Voice(kind="design"), tmp_path / "voices", name)
    assert not (tmp_path / "voices").exists()


def test_a_damaged_voice_is_refused(tmp_path: Path) -> None:
    path = save_voice(Voice(kind="clone", x_vector=torch.ones(4)), tmp_path, "one")
    with pytest.raises(UnknownName, match="Did you mean 'one'"):
        load_voice(tmp_path, "ono")
    tensors = path.with_suffix(".safetensors")
    whole = tensors.read_bytes()
    tensors.write_bytes(whole[:-3])
    with pytest.raises(ModelFileError, match=r"one\.safetensors: missing or damaged"):
        load_voice(tmp_path, "one")
    save_voice(Voice(kind="preset", speaker="a"), tmp_path, "two")
    tensors.write_bytes(path.with_name("two.safetensors").read_bytes())
    with pytest.raises(ModelFileError, match="doesn't fit its"):
        load_voice(tmp_path, "one")
    path.write_text(path.read_text(encoding="utf-8").replace('"clone"', '"other"'), encoding="utf-8")
    with pytest.raises(ModelFileError, match="kind is 'other'"):
        load_voice(tmp_path, "one")


def test_a_voice_that_is_no_number_is_refused(tmp_path: Path) -> None:
    save_voice(Voice(kind="clone", x_vector=torch.tensor([1.0, float("nan")])), tmp_path, "one")
    with pytest.raises(ModelFileError, match="'x_vector' isn't finite"):
        load_voice(tmp_path, "one")


def test_a_voice_larger_than_any_is_refused(tmp_path: Path) -> None:
    path = save_voice(Voice(kind="clone", x_vector=torch.ones(4)), tmp_path, "one")
    enlarge(path.with_suffix(".safetensors"), 8 << 20)
    with pytest.raises(ModelFileError, match=r"one\.safetensors: larger than 8,388,608 bytes"):
        load_voice(tmp_path, "one")


def test_half_a_character_in_any_text_is_refused(session: Session) -> None:
    for model, option in (("design-large", "description"), ("custom-large", "instruct")):
        with pytest.raises(InputError, match="surrogate pair"):
            speak(session, model, **{option: "a\ud800"})
    voice = Voice(kind="clone", x_vector=torch.ones(24), codes=torch.zeros(16, 3, dtype=torch.long), text="\udfff")
    with pytest.raises(InputError, match="surrogate pair"):
        speak(session, "base-small", voice=Artifact("MIZUOTO_QWEN3TTS_VOICE", voice, ()))


def test_a_prompt_beyond_what_the_model_takes_is_refused(session: Session) -> None:
    with pytest.raises(InputError, match=r"positions, the model takes 32,768: \d+ tokens of text, \d\d,\d{3} of the"):
        speak(session, "design-large", description="a " * 40_000)
    with pytest.raises(InputError, match="let split_tokens split the text"):
        speak(session, "custom-small", text="a " * 40_000, split_tokens=0)


def test_a_batch_of_recordings_gives_the_voice_of_its_first(session: Session) -> None:
    batch = Audio(torch.stack([torch.zeros(2, 8_000), REFERENCE.samples.expand(2, -1)]), 24_000)
    alone = voice_of(session, "base-small", "voice_from_audio", {"reference": REFERENCE}).value
    chosen = voice_of(session, "base-small", "voice_from_audio", {"reference": batch})
    assert torch.equal(chosen.value.x_vector, alone.x_vector)
    assert any("a batch of 2; number 2" in warning for report in chosen.reports for warning in report.warnings)


def test_a_recording_without_its_text_gives_its_sound_alone(session: Session) -> None:
    output = speak(session, "base-small", reference=REFERENCE)
    assert output.meta["applied"] == {"x_vector_only_mode": True}
    stereo = Audio(torch.cat((REFERENCE.samples, REFERENCE.samples)), 24_000)
    assert torch.equal(speak(session, "base-small", reference=stereo).audio.samples, output.audio.samples)
    with pytest.raises(InputError, match="silent"):
        speak(session, "base-small", reference=Audio(torch.zeros(1, 24_000), 24_000))


@pytest.mark.parametrize(
    ("model", "options", "problem"),
    [
        ("base-small", {}, "a Base model needs a voice"),
        ("base-small", {"speaker": "vivian"}, "only CustomVoice models have preset voices"),
        ("base-small", {"description": "deep"}, "only VoiceDesign models"),
        ("custom-small", {"reference": REFERENCE}, "only Base models take a voice from audio"),
        ("custom-small", {"speaker": "nobody"}, "unknown speaker 'nobody'.*eric, vivian"),
        ("custom-small", {"speaker": "eric", "language": "french"}, "unknown language 'french'"),
        ("custom-small", {"speaker": "eric", "max_new_tokens": 1}, "from 2 to"),
        ("custom-small", {"speaker": "eric", "do_sample": "maybe"}, "auto, false, true"),
        ("design-large", {"description": "deep", "instruct": "high"}, "give one of them"),
    ],
)
def test_what_a_model_cannot_do_is_refused(
    session: Session, model: str, options: dict[str, object], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        speak(session, model, **options)


def test_a_description_is_an_instruction(session: Session) -> None:
    described = speak(session, "design-large", description="A calm voice.")
    assert torch.equal(speak(session, "design-large", instruct="A calm voice.").audio.samples, described.audio.samples)
    other = speak(session, "design-large", description="A shrill voice.")
    assert not torch.equal(other.audio.samples[0, :999], described.audio.samples[0, :999])
    small = speak(session, "custom-small", speaker="eric", instruct="Sad.")
    assert "takes no instruction" in str(small.meta["warnings"])


def test_an_option_beats_the_models_file_which_beats_upstreams_default(root: Path) -> None:
    file = read_config(root / "qwen3tts" / "custom-large").generation
    assert (file.top_k, file.repetition_penalty, file.max_new_tokens) == (20, None, 8192)
    how = GenerationOptions(top_k=7, subtalker_dosample=False).or_else(file).resolved()
    assert (how.talker.top_k, how.repetition_penalty, how.max_new_tokens) == (7, 1.05, 8192)
    assert (how.predictor.sample, how.predictor.top_k, how.talker.sample) == (False, 50, True)


def test_a_long_text_is_split_at_sentences(session: Session, root: Path) -> None:
    tokenizer = load_tokenizer(root / "qwen3tts" / "custom-small")
    text = "Hello there. How are you today? The fox jumps over the dog. 你好。今天天气很好。"
    assert split_text(tokenizer, text, 0) == split_text(tokenizer, text, 300) == [text]
    pieces = split_text(tokenizer, text, 9)
    assert len(pieces) > 2
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
    assert all(len(tokenizer.encode(piece)) <= 9 for piece in pieces)
    options = {"speaker": "vivian", "max_new_tokens": 4, "sentence_silence": 0.0}
    split = speak(session, "custom-small", text, split_tokens=9, **options)
    assert split.audio.samples.shape[-1] == len(pieces) * 3 * 1920
    alone = speak(session, "custom-small", pieces[0], **options)
    assert torch.equal(split.audio.samples[:, :5000], alone.audio.samples[:, :5000])


def test_speech_without_an_end_is_stopped_and_said_so(session: Session) -> None:
    output = speak(session, "custom-streamed", "Hi.", speaker="vivian", max_new_tokens=5000)
    tokens = output.audio.samples.shape[-1] // 1920 + 1
    assert tokens == most_tokens(3, 5000) < 200
    assert "found no end" in str(output.meta["warnings"])
    cut = speak(session, "custom-streamed", "Hi.", speaker="vivian", max_new_tokens=5)
    assert "cut off after 4 frames (0.3 seconds) by max_new_tokens" in str(cut.meta["warnings"])


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_keys_and_values_take_what_is_estimated(root: Path, kind: CacheKind) -> None:
    """In a real request; what a cache takes while it grows is measured in tests/lm/test_cache.py."""
    loaded = load_modules(root / "qwen3tts" / "custom-small")
    talker, frames = loaded.talker, 60
    talker.codec_head.weight[talker.config.ids.eos] = 0
    request = Request(text=loaded.tokenizer.spoken("Hello there."), non_streaming=True)
    prompt = build_prompt(talker, loaded.config, request, torch.device("cpu"))
    how = GenerationOptions(max_new_tokens=frames + 1, do_sample=False, subtalker_dosample=False).resolved()
    with LiveBytes() as live:
        writer = Writer(talker, [prompt], how, generator(1), kind)
        empty = live.current_bytes
        while writer.frame():
            pass
        taken = live.current_bytes - empty
    decoder = talker.config.decoder
    each = position_bytes(decoder.kv_heads, decoder.head_dim, torch.float32)
    assert writer.cache.length_positions == len(prompt.rows) + frames - 1
    estimated = peak_bytes(each, decoder.layers, writer.cache.length_positions, kind, 1)
    growing = each * writer.cache.length_positions if kind == "dynamic" else 0
    assert writer.cache.held_bytes <= taken
    assert writer.cache.held_bytes + growing <= estimated <= 1.25 * (writer.cache.held_bytes + growing)


def test_shards_and_halves_load(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "qwen3tts" / "sharded", "custom-small", shards=3)
    write_checkpoint(tmp_path / "qwen3tts" / "whole", "custom-small")
    write_checkpoint(tmp_path / "qwen3tts" / "half", "custom-small", dtype=torch.bfloat16)
    session = Session(resolve(environment={}), ModelLibrary([tmp_path]))
    made = [speak(session, name, speaker="eric").audio.samples for name in ("sharded", "whole", "half")]
    assert torch.equal(made[0], made[1])
    assert made[2].shape == made[0].shape
    files = session.find("qwen3tts", "half")
    talker, decoder = session.open(files).handles
    assert {parameter.dtype for parameter in talker.module.parameters()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in decoder.module.parameters()} == {torch.float32}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_request_may_choose_its_dtype(library: ModelLibrary, dtype: str) -> None:
    session = Session(resolve({"compute.dtype": dtype}, {}), library)
    output = speak(session, "base-small", reference=REFERENCE, reference_text="Hello.")
    handles = session.open(session.find("qwen3tts", "base-small")).handles
    found = {parameter.dtype for handle in handles for parameter in handle.module.parameters()}
    assert found == {getattr(torch, dtype)}
    assert output.meta["applied"] == {"dtype": dtype}
    assert output.audio.samples.dtype == torch.float32 and output.audio.samples.std() > 1e-3


def test_a_wrong_file_names_what_is_wrong(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "qwen3tts" / "one", "custom-small")
    session = Session(resolve(environment={}), ModelLibrary([tmp_path]))

    def refused(problem: str) -> None:
        with pytest.raises(ModelFileError, match=problem):
            session.open(session.find("qwen3tts", "one"))

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    wider = {**config, "talker_config": {**config["talker_config"], "intermediate_size": 57}}
    (folder / "config.json").write_text(json.dumps(wider), encoding="utf-8")
    refused(r"model\.safetensors: the weight 'talker\.model\.layers\.0\.mlp.*\[24, 56\].*it is \[24, 57\]")
    deeper = {**config, "talker_config": {**config["talker_config"], "num_hidden_layers": 4}}
    (folder / "config.json").write_text(json.dumps(deeper), encoding="utf-8")
    refused(r"model\.safetensors: .* missing: 'model\.layers\.3\.")
    (folder / "config.json").write_text(json.dumps({**config, "tts_model_type": "song"}), encoding="utf-8")
    refused("tts_model_type is 'song'; known: base, custom_voice, voice_design")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    refused(r"model\.safetensors: truncated")
    write_checkpoint(folder, "custom-small")
    merges = folder / "merges.txt"
    for size_bytes in (0, 9, merges.stat().st_size // 2, merges.stat().st_size - 2):
        merges.write_bytes(merges.read_bytes()[:size_bytes])
        refused(r"merges\.txt: ends before the merge that makes|vocab\.json: not the vocabulary of merges\.txt")
        write_checkpoint(folder, "custom-small")
    merges.unlink()
    refused(r"merges\.txt: there is no such file")
    for name in ("merges.txt", "vocab.json"):
        write_checkpoint(folder, "custom-small")
        enlarge(folder / name, 64 << 20)
        refused(rf"{name}: larger than 67,108,864 bytes")
    write_checkpoint(folder, "custom-small")
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["added_tokens_decoder"]["9" * 5000] = {"content": "<|more|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    refused(r"added_tokens_decoder\.9+ is no id")


def enlarge(path: Path, size_bytes: int) -> None:
    """To more bytes than that, which take no room on the disk."""
    with path.open("ab") as file:
        file.truncate(size_bytes + 1)


@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("sampled", ["true", "false"])
@pytest.mark.parametrize(
    ("weight", "problem"),
    [
        ("talker:model.layers.0.self_attn.q_proj.weight", "the logits of codes aren't finite"),
        ("talker:codec_head.weight", "the logits of codes aren't finite"),
        ("talker:code_predictor.model.layers.0.mlp.up_proj.weight", "the logits of codes aren't finite"),
        ("talker:code_predictor.lm_head.14.weight", "the logits of codes aren't finite"),
        ("codec_encoder:output.weight", "what codes leave of the encoded reference's values aren't finite"),
        ("codec_encoder:semantic.books.0.sums", "what codes leave of the encoded reference's values aren't finite"),
        ("speaker_encoder:output.bias", "Voice from Audio: 1 of 24 values aren't finite"),
    ],
)
def test_weights_that_are_no_numbers_give_no_speech(
    session: Session, weight: str, problem: str, sampled: str, value: float
) -> None:
    """Choosing codes would hide them."""
    damage(session, session.find("qwen3tts", "base-small"), weight, value)
    how = {"do_sample": sampled, "subtalker_dosample": sampled}
    with pytest.raises(NotFinite, match=problem):
        speak(session, "base-small", reference=REFERENCE, reference_text="Hello.", **how)
