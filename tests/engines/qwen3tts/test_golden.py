"""Every model type and prompt layout against upstream: prompts and codes equal, waveforms within the tolerance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mizuoto_runtime.engines.qwen3tts import phases
from mizuoto_runtime.engines.qwen3tts.config import GenerationOptions
from mizuoto_runtime.engines.qwen3tts.generate import Writer
from mizuoto_runtime.engines.qwen3tts.prompt import Request, build_prompt
from mizuoto_runtime.engines.qwen3tts.speech import Codes
from mizuoto_runtime.engines.qwen3tts.text import TAIL_IDS
from mizuoto_runtime.engines.qwen3tts.weights import Modules, load_modules
from mizuoto_runtime.lm.cache import CacheKind
from mizuoto_runtime.nn import products
from mizuoto_runtime.nn.linear import lay_out_in_blocks
from mizuoto_runtime.seeds import generator
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.types import Audio
from tests.engines.qwen3tts.conftest import CASES, SINGLE, TOLERANCE, Recorded, recorded
from tests.golden.qwen3tts.checkpoint import reference_sound


@pytest.fixture(scope="module")
def opened(root: Path) -> dict[str, Modules]:
    return {path.name: load_modules(path) for path in (root / "qwen3tts").iterdir() if (path / "config.json").exists()}


def request(loaded: Modules, row: Recorded) -> Request:
    """As the phases make it, but with the voice as it was recorded."""
    tokenizer, config, given = loaded.tokenizer, loaded.config, row.given
    text = given.get("ref_text", "")
    codes = row.arrays.get("ref_codes")
    return Request(
        text=tokenizer.spoken(given["text"]),
        language=config.language(given.get("language", "Auto")),
        instruction=tokenizer.instruction(given.get("instruct", "")) if config.takes_style else (),
        speaker=config.speaker(given["speaker"]) if "speaker" in given else "",
        x_vector=row.arrays.get("x_vector"),
        reference=tokenizer.reference(text) if codes is not None else (),
        reference_codes=codes,
        non_streaming=row.non_streaming,
    )


@pytest.mark.parametrize("number", CASES)
def test_the_ids_of_the_prompts_are_upstreams(opened: dict[str, Modules], number: int) -> None:
    for row in recorded(number):
        made = request(opened[row.model], row)
        ids = row.arrays["ids"].tolist()
        assert list(made.text.role + made.text.ids) == ids[:-TAIL_IDS]
        assert list(made.instruction) == row.arrays.get("instruct_ids", torch.empty(0)).tolist()
        if "ref_ids" in row.arrays and made.reference_codes is not None:
            assert list(made.reference) == row.arrays["ref_ids"].tolist()[3:-2]


def written(loaded: Modules, rows: list[Recorded], kv_cache: CacheKind = "dynamic") -> list[Tensor]:
    """The codes of a case, with all its rows in one batch."""
    how = GenerationOptions(**rows[0].options).or_else(loaded.config.generation).resolved()
    prompts = [build_prompt(loaded.talker, loaded.config, request(loaded, row), torch.device("cpu")) for row in rows]
    writer = Writer(loaded.talker, prompts, how, generator(rows[0].seed), kv_cache)
    while writer.frame():
        pass
    assert writer.ended is all(row.ends == "end" for row in rows)
    return writer.codes()


@pytest.mark.parametrize("number", CASES)
@pytest.mark.parametrize("kv_cache", ["dynamic", "static"])
def test_the_codes_are_upstreams_in_batches_too(opened: dict[str, Modules], number: int, kv_cache: CacheKind) -> None:
    rows = recorded(number)
    for made, row in zip(written(opened[rows[0].model], rows, kv_cache), rows, strict=True):
        assert torch.equal(made, row.codes)


@pytest.mark.parametrize("number", CASES)
def test_the_codes_are_upstreams_with_weights_in_blocks(
    root: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As a CPU's large layers compute, here the small ones too."""
    monkeypatch.setattr(products, "LEAST_BYTES", 0)
    rows = recorded(number)
    loaded = load_modules(root / "qwen3tts" / rows[0].model)
    lay_out_in_blocks(loaded.talker.code_predictor)
    for made, row in zip(written(loaded, rows), rows, strict=True):
        assert torch.equal(made, row.codes)


@pytest.mark.parametrize("number", [number for number in CASES if number not in SINGLE])
def test_the_waveforms_of_a_batch_are_upstreams(opened: dict[str, Modules], number: int) -> None:
    rows = recorded(number)
    loaded = opened[rows[0].model]
    for made, row in zip(written(loaded, rows), rows, strict=True):
        if "samples" not in row.arrays:
            continue
        before = row.arrays.get("ref_codes", made[:, :0]).long()
        whole = loaded.decoder.decode(torch.cat((before, made), dim=1))
        cut = int(before.shape[1] / (before.shape[1] + made.shape[1]) * len(whole))
        wanted = row.arrays["samples"]
        assert whole[cut:].shape == wanted.shape
        assert wanted.std() > 0.01
        assert (whole[cut:] - wanted).abs().max() < TOLERANCE


@pytest.mark.parametrize("number", SINGLE)
def test_a_request_gives_upstreams_codes_and_waveform(
    session: Session, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (row,) = recorded(number)
    decoded = []
    decode = phases.decode

    def noted(*args: Any, codes: Codes, **more: Any) -> Audio:
        decoded.append(codes)
        return decode(*args, codes=codes, **more)

    monkeypatch.setattr(phases, "decode", noted)
    output = session.speak(session.find("qwen3tts", row.model), speak_request(row))
    (piece,) = decoded[0].pieces
    assert torch.equal(piece.frames, row.codes)
    if piece.reference is not None:
        assert torch.equal(piece.reference, row.arrays["ref_codes"].long())
    assert output.audio.rate_hz == 24_000
    if "samples" in row.arrays:
        wanted = row.arrays["samples"]
        assert output.audio.samples.shape == (1, len(wanted))
        assert wanted.std() > 0.01
        assert (output.audio.samples[0] - wanted).abs().max() < TOLERANCE


def speak_request(row: Recorded) -> SpeakRequest:
    """The recorded call, as a request of this pack."""
    given, options = row.given, dict(row.options)
    inputs: dict[str, object] = {}
    for name in ("language", "speaker", "instruct", "non_streaming_mode", "x_vector_only_mode"):
        if name in given:
            options[name] = given[name]
    if row.method == "generate_voice_design":
        options["description"] = options.pop("instruct")
    if "ref_audio" in given:
        sound = given["ref_audio"]
        inputs["reference"] = Audio(reference_sound(sound["length"], sound["seed"])[None], sound["rate_hz"])
        if "ref_text" in given:
            inputs["reference_text"] = given["ref_text"]
    return SpeakRequest(text=given["text"], seed=row.seed, inputs=inputs, options=options)
