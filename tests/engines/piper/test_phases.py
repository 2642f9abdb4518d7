"""The real voice through its phases: equal to piper-tts, intelligible, reproducible, cancellable."""

import json
import lzma
import re
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from piper import PiperVoice, SynthesisConfig
from pocketsphinx import Decoder
from scipy.signal import resample_poly

from mizuoto_runtime.errors import Cancelled, InputError, UnknownName
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Audio, Callbacks, Progress

GOLDEN = Path(__file__).parents[2] / "golden" / "piper"
SILENT_NOISE = {"noise_scale": 0.0, "noise_w": 0.0}
TOLERANCE = 1e-4
BOTH_ROUND = 3e-4  # loud sentences: against float64, onnxruntime and this engine are each about 1e-4 off
LOUDNESS = 20_000
RECOGNISER_RATE_HZ = 16_000

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "She opened the window and looked at the garden.",
    "We are going to the market in the morning.",
    "The children played in the park after school.",
    "He asked the teacher a question about history.",
    "The train will arrive at the station at seven.",
    "My brother wants to buy a new car next year.",
    "It was raining when they left the house.",
    "The doctor told him to drink more water.",
    "People like to listen to music in the evening.",
)


def speak(session: Session, files: ModelFiles, text: str, seed: int = 0, **options: object) -> Audio:
    return session.speak(files, SpeakRequest(text=text, seed=seed, options=options)).audio


@pytest.fixture(scope="module")
def upstream(voice_path: Path) -> PiperVoice:
    return PiperVoice.load(voice_path)


@pytest.mark.parametrize("text", SENTENCES)
def test_without_noise_the_samples_are_those_of_piper_tts(
    session: Session, joe: ModelFiles, upstream: PiperVoice, text: str
) -> None:
    config = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, normalize_audio=False)
    (chunk,) = upstream.synthesize(text, config)
    samples = speak(session, joe, text, **SILENT_NOISE).samples
    assert samples.shape == (1, len(chunk.audio_float_array))
    assert np.abs(samples[0].numpy() - chunk.audio_float_array).max() < TOLERANCE


def test_a_text_of_several_sentences_is_piper_ttss_but_for_the_joints(
    session: Session, joe: ModelFiles, upstream: PiperVoice
) -> None:
    text = "Dr. Smith paid $3.50 for it. Really? Yes, he did!"
    config = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, normalize_audio=False)
    chunks = [chunk.audio_float_array for chunk in upstream.synthesize(text, config)]
    samples = speak(session, joe, text, **SILENT_NOISE).samples[0].numpy()
    assert len(chunks) >= 3
    assert len(samples) == sum(map(len, chunks))
    fade = round(0.004 * 22_050)
    start = 0
    for chunk in chunks:
        inner = slice(start + fade, start + len(chunk) - fade)
        assert np.abs(samples[inner] - chunk[fade:-fade]).max() < BOTH_ROUND
        start += len(chunk)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def recognised(audio: Audio) -> list[str]:
    """What pocketsphinx hears."""
    samples = resample_poly(audio.samples[0].numpy(), RECOGNISER_RATE_HZ, audio.rate_hz)
    decoder = Decoder(samprate=RECOGNISER_RATE_HZ, loglevel="FATAL")
    decoder.start_utt()
    decoder.process_raw((samples / np.abs(samples).max() * LOUDNESS).astype("<i2").tobytes(), full_utt=True)
    decoder.end_utt()
    hypothesis = decoder.hyp()
    return words(hypothesis.hypstr) if hypothesis else []


def common(expected: list[str], heard: list[str]) -> int:
    """Length of the longest common subsequence of words."""
    row = [0] * (len(heard) + 1)
    for word in expected:
        diagonal = 0
        for index, other in enumerate(heard, 1):
            diagonal, row[index] = row[index], diagonal + 1 if word == other else max(row[index], row[index - 1])
    return row[-1]


def test_a_recogniser_reads_back_four_words_in_five(session: Session, joe: ModelFiles) -> None:
    heard = sum(common(words(text), recognised(speak(session, joe, text))) for text in SENTENCES)
    spoken = sum(len(words(text)) for text in SENTENCES)
    assert heard >= 0.8 * spoken, f"{heard} of {spoken} words"


def test_noise_comes_from_the_seed_alone(session: Session, joe: ModelFiles) -> None:
    once = speak(session, joe, "One. Two.", seed=5).samples
    torch.manual_seed(99)
    assert torch.equal(once, speak(session, joe, "One. Two.", seed=5).samples)
    other = speak(session, joe, "One. Two.", seed=6).samples
    assert other.shape != once.shape or not torch.equal(other, once)


def test_the_decoder_alone_can_be_run_again(session: Session, joe: ModelFiles) -> None:
    (encoding,) = session.run_phase(joe, "encode", {"text": "One. Two."}, {}, seed=1)
    decoded = [
        session.run_phase(joe, "decode", {"encoding": encoding}, {"sentence_silence": silence}, seed=1)[0]
        for silence in (0.0, 0.5)
    ]
    lengths = [item.value.samples.shape[1] for item in decoded if isinstance(item.value, Audio)]
    assert lengths[1] - lengths[0] == round(0.5 * 22_050)
    assert [report.phase for report in decoded[1].reports] == ["encode", "decode"]


def test_options_do_what_they_say(session: Session, joe: ModelFiles) -> None:
    plain = speak(session, joe, "A slow sentence.", **SILENT_NOISE).duration_seconds
    slow = speak(session, joe, "A slow sentence.", length_scale=2.0, **SILENT_NOISE).duration_seconds
    assert 1.8 < slow / plain < 2.1


@pytest.mark.parametrize("speaker", ["0", ""])
def test_the_only_speaker_may_be_named(session: Session, joe: ModelFiles, speaker: str) -> None:
    named = speak(session, joe, "Hello.", speaker=speaker).samples
    assert torch.equal(named, speak(session, joe, "Hello.").samples)


@pytest.mark.parametrize("speaker", ["1", "joe", "-1", "0.0", "٠"])
def test_an_unknown_speaker_is_refused(session: Session, joe: ModelFiles, speaker: str) -> None:
    with pytest.raises(UnknownName, match="the numbers 0"):
        speak(session, joe, "Hello.", speaker=speaker)


@pytest.mark.parametrize("text", ["😀😀", "☃", "...", "«»", "***"])
def test_a_text_without_words_gives_audio_or_a_reason(session: Session, joe: ModelFiles, text: str) -> None:
    try:
        audio = speak(session, joe, text)
    except InputError as error:
        assert "nothing in the text" in str(error)
    else:
        assert audio.samples.shape[1] > 0


def test_what_the_voice_cannot_say_is_noted(session: Session, joe: ModelFiles) -> None:
    output = session.speak(joe, SpeakRequest(text="Hello [[ həlˈoʊ ☃ ]] there."))
    assert any("☃" in str(warning) for warning in output.meta["warnings"])  # type: ignore[attr-defined]


def test_progress_comes_with_every_sentence_and_a_cancel_ends_it_soon(session: Session, joe: ModelFiles) -> None:
    steps: list[Progress] = []
    text = " ".join(SENTENCES)
    session.speak(joe, SpeakRequest(text=text), Callbacks(steps.append))
    assert [step.done for step in steps if step.phase == "Decode"] == list(range(len(SENTENCES) + 1))

    cancelled_at = time.perf_counter() + 0.5

    def check() -> None:
        if time.perf_counter() > cancelled_at:
            raise Cancelled("enough")

    with pytest.raises(Cancelled):
        session.speak(joe, SpeakRequest(text=text * 3), Callbacks(check=check))
    assert time.perf_counter() - cancelled_at < 0.5
    before = speak(session, joe, "Hello.").samples
    assert torch.equal(before, speak(session, joe, "Hello.").samples)


def test_the_voice_is_mapped_from_its_cache_and_survives_without_one(
    session: Session, joe: ModelFiles, voice_path: Path
) -> None:
    before = speak(session, joe, "Hello.").samples
    for path in voice_path.parent.rglob("*.safetensors"):
        path.write_bytes(b"garbage")
    session.close()
    assert torch.equal(before, speak(session, joe, "Hello.").samples)
    assert any(path.stat().st_size > 1_000_000 for path in voice_path.parent.rglob("*.safetensors"))


def test_the_report_tells_of_both_components(session: Session, joe: ModelFiles) -> None:
    memory = session.speak(joe, SpeakRequest(text="Hello.")).meta["memory"]
    assert memory["size_mb"] == memory["loaded_mb"] == pytest.approx(62.6, abs=0.5)  # type: ignore[index]


def golden_voice(name: str, folder: Path) -> None:
    """A small random voice of the golden data, unpacked, with an id for each of a few phonemes."""
    source = GOLDEN / f"{name}.onnx"
    (folder / source.name).write_bytes(lzma.decompress(source.with_name(f"{name}.onnx.xz").read_bytes()))
    config = json.loads(source.with_name(f"{name}.onnx.json").read_text(encoding="utf-8"))
    config["phoneme_id_map"] = {phoneme: [number] for number, phoneme in enumerate("_^$ .həlˈoʊ")}
    (folder / f"{name}.onnx.json").write_text(json.dumps(config), encoding="utf-8")


def test_wires_between_two_voices_are_refused(tmp_path: Path) -> None:
    (tmp_path / "piper").mkdir()
    for name in ("low", "medium", "medium_speakers"):
        golden_voice(name, tmp_path / "piper")
    session = Session(resolve(environment={}), ModelLibrary([tmp_path]))
    low, medium, many = (session.find("piper", name) for name in ("low", "medium", "medium_speakers"))
    (encoding,) = session.run_phase(low, "encode", {"text": "Hello."}, {})
    with pytest.raises(InputError, match="of the voice 'low', the model 'medium'"):
        session.run_phase(medium, "decode", {"encoding": encoding}, {})
    (speaker,) = session.run_phase(many, "voice", {}, {"speaker": "1"})
    with pytest.raises(InputError, match="of the voice 'medium_speakers', the model 'medium'"):
        session.run_phase(medium, "encode", {"text": "Hello.", "voice": speaker}, {})
    (other,) = session.run_phase(many, "voice", {}, {"speaker": "0"})
    spoken = [session.run_phase(many, "encode", {"text": "Hello.", "voice": who}, {})[0] for who in (speaker, other)]
    audio = [session.run_phase(many, "decode", {"encoding": item}, {})[0].value for item in spoken]
    assert not torch.equal(audio[0].samples[:, :500], audio[1].samples[:, :500])  # type: ignore[attr-defined]
