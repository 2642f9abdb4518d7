"""Writes the golden audio tokenizers, references and outputs: tiny random weights, run by upstream's own classes.

Run in an environment with `omnivoice==0.2.1`, transformers 5.24.0, torchaudio, pydub and soundfile, from the
repository's root:

    python -m tests.golden.omnivoice.codec.record

It writes a folder for each codec, with `config.json` and `model.safetensors` as published and `cases.safetensors` (what
upstream makes of the inputs), and `golden.json` with versions, seeds, tolerance, references and outputs.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import shutil
import tempfile
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from omnivoice.models.omnivoice import OmniVoice, OmniVoiceGenerationConfig
from safetensors.torch import save_file
from torch import Tensor
from transformers import HiggsAudioV2TokenizerConfig, HiggsAudioV2TokenizerModel

from tests.golden.omnivoice.cases import WAVE_STRIDE
from tests.golden.omnivoice.codec.cases import CODECS, DECODED_FRAMES, ENCODED_SAMPLES, LONGEST, OUTPUTS, REFERENCES
from tests.golden.omnivoice.codec.signals import bursts, tones

FOLDER = Path(__file__).parent
FIRST_SEED = 20_261_130
TOLERANCE = 3e-5
RESIDUAL = 0.6
"""Of the weights beside a shortcut: with larger ones a decoder makes much of little, rounding included."""
MOST_ROUNDING = TOLERANCE / 4
"""Of a recorded sample in float32: another CPU, with other orders of sums, is then within the tolerance as well."""
PEAK = 0.7
LEAST_MARGIN = 2e-4
"""How much further the second nearest vector is, in squared distances of the nearest one, for codes to be recorded."""
RATE_HZ = 24_000
HOP = 960
SHOWN = 997
"""Every so many samples are recorded as they are; of all of them, a digest."""


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with torch.no_grad():
        codecs = {name: record_codec(name, sizes) for name, sizes in CODECS.items()}
        references = [record_reference(case) for case in REFERENCES]
        outputs = [record_output(case) for case in OUTPUTS]
    names = ("omnivoice", "transformers", "torch", "torchaudio", "pydub", "numpy")
    golden = {
        "versions": {name: metadata.version(name) for name in names},
        "tolerance": TOLERANCE,
        "codecs": codecs,
        "references": references,
        "outputs": outputs,
    }
    (FOLDER / "golden.json").write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")
    print(f"{sum(path.stat().st_size for path in FOLDER.rglob('*') if path.is_file()):,} bytes in all")


def record_codec(name: str, sizes: dict[str, Any]) -> dict[str, float]:
    """Tries seeds until no code is near another one and rounding does little. Returns seed, margin and rounding."""
    seed = FIRST_SEED
    while True:
        model = make_model(sizes, seed)
        cases, margin = run(model, name, seed)
        rounding = rounding_of(model, cases)
        if margin >= LEAST_MARGIN and rounding <= MOST_ROUNDING:
            break
        seed += 1
    print(f"{name}: seed {seed}, margin {margin:.1e}, rounding {rounding:.1e}")
    folder = FOLDER / name
    with tempfile.TemporaryDirectory() as temporary:
        model.save_pretrained(temporary)
        folder.mkdir(exist_ok=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copyfile(Path(temporary) / file, folder / file)
    save_file(cases, folder / "cases.safetensors")
    return {"seed": seed, "margin": margin, "rounding": rounding}


def make_model(sizes: dict[str, Any], seed: int) -> HiggsAudioV2TokenizerModel:
    torch.manual_seed(seed)
    model = HiggsAudioV2TokenizerModel(HiggsAudioV2TokenizerConfig(**sizes)).eval()
    generator = torch.Generator().manual_seed(seed)
    for key, weight in model.state_dict().items():
        draw = torch.randn(weight.shape, generator=generator)
        if key.endswith("inited"):
            continue
        if key.endswith("alpha"):
            weight.copy_(draw.abs() + 0.3)
        elif key.endswith("original0"):
            weight.copy_(draw.abs() + 0.5)
        elif "norm" in key and weight.ndim == 1:
            weight.copy_((1 if key.endswith("weight") else 0) + 0.2 * draw)
        else:
            weight.copy_(draw / (weight[0].numel() if weight.ndim > 1 else 25) ** 0.5)
        if key.startswith("acoustic_decoder.") and ".res_unit" in key and weight.ndim > 1 and ".snake" not in key:
            weight.mul_(RESIDUAL)
    fit_codebooks(model, generator)
    set_loudness(model)
    return model


def fit_codebooks(model: HiggsAudioV2TokenizerModel, generator: torch.Generator) -> None:
    """Spread each codebook's vectors as what it quantises is spread, so that all codes occur."""
    residuals: list[Tensor] = []
    hook = model.fc.register_forward_hook(lambda *args: residuals.append(args[-1]))
    model.encode(tones(RATE_HZ)[None, None])
    hook.remove()
    residual = residuals[0].transpose(1, 2)
    for layer in model.quantizer.quantizers:
        projected = layer.project_in(residual.transpose(1, 2))[0]
        embed = layer.codebook.embed
        embed.copy_(projected.mean(dim=0) + projected.std(dim=0) * torch.randn(embed.shape, generator=generator))
        residual = residual - 0.5 * layer.decode(layer.encode(residual))


def set_loudness(model: HiggsAudioV2TokenizerModel) -> None:
    last = model.acoustic_decoder.conv2
    codes = torch.arange(40).repeat(1, model.config.num_quantizers, 1) % model.config.codebook_size
    factor = PEAK / model.decode(codes).audio_values.abs().max()
    last.weight.mul_(factor)
    last.bias.mul_(factor)


def run(model: HiggsAudioV2TokenizerModel, name: str, seed: int) -> tuple[dict[str, Tensor], float]:
    """What the model makes of the inputs, and the least margin of any code."""
    margins: list[float] = []
    hooks = [layer.project_in.register_forward_hook(margin_of(layer, margins)) for layer in model.quantizer.quantizers]
    cases: dict[str, Tensor] = {}
    for length in ENCODED_SAMPLES[name]:
        codes = model.encode(tones(length)[None, None]).audio_codes[0]
        cases[f"encode.{length}.codes"] = codes.to(torch.uint8)
    for hook in hooks:
        hook.remove()
    generator = torch.Generator().manual_seed(seed)
    for frames in DECODED_FRAMES[name]:
        codes = torch.randint(model.config.codebook_size, (model.config.num_quantizers, frames), generator=generator)
        cases[f"decode.{frames}.codes"] = codes.to(torch.uint8)
        cases[f"decode.{frames}.samples"] = decoded(model, codes)
    return cases, min(margins)


def decoded(model: HiggsAudioV2TokenizerModel, codes: Tensor) -> Tensor:
    return model.decode(codes[None]).audio_values[0, :, ::WAVE_STRIDE].contiguous()


def rounding_of(model: HiggsAudioV2TokenizerModel, cases: dict[str, Tensor]) -> float:
    """How far what was decoded is from the same in float64, at most."""
    precise = copy.deepcopy(model).double()
    return max(
        float((decoded(precise, codes.long()) - cases[name.replace("codes", "samples")]).abs().max())
        for name, codes in cases.items()
        if name.startswith("decode.") and name.endswith(".codes")
    )


def margin_of(layer: Any, margins: list[float]) -> Any:
    def note(module: Any, inputs: Any, projected: Tensor) -> None:
        distances = torch.cdist(projected[0].double(), layer.codebook.embed.double()).square()
        nearest = distances.topk(2, dim=1, largest=False).values
        scale = distances.mean(dim=1)
        margins.append(float(((nearest[:, 1] - nearest[:, 0]) / scale).min()))

    return note


def record_reference(case: dict[str, Any]) -> dict[str, Any]:
    given: list[Tensor] = []

    def encode(wave: Tensor) -> Any:
        given.append(wave)
        return SimpleNamespace(audio_codes=torch.zeros(1, 8, 1))

    tokenizer = SimpleNamespace(config=SimpleNamespace(hop_length=HOP), device="cpu", encode=encode)
    model: Any = SimpleNamespace(audio_tokenizer=tokenizer, sampling_rate=RATE_HZ)
    wave = bursts(case["length"], case["longest"], case["steps"], case["seed"], case["channels"])
    prompt = OmniVoice.create_voice_clone_prompt(
        model, (wave, case["rate_hz"]), "Words.", preprocess_prompt=not case.get("plain", False)
    )
    return {"rms": prompt.ref_rms, **shown(given[0][0, 0].numpy())}


def record_output(case: dict[str, Any]) -> dict[str, Any]:
    lengths = [HOP * frames for frames in case["frames"]]
    wave = bursts(sum(lengths), LONGEST, case["steps"], case["seed"])
    waves = list(wave.split(lengths, dim=1))
    tokens: Any = [torch.tensor([index]) for index in range(len(waves))]
    tokenizer = SimpleNamespace(
        device="cpu", decode=lambda codes: SimpleNamespace(audio_values=[waves[int(codes[0, 0])].clone()])
    )
    model: Any = SimpleNamespace(audio_tokenizer=tokenizer, sampling_rate=RATE_HZ)
    model._post_process_audio = lambda audio, **given: OmniVoice._post_process_audio(model, audio, **given)
    options = {key: value for key, value in case.items() if key not in ("frames", "steps", "seed", "rms")}
    how = OmniVoiceGenerationConfig(**options)
    chosen = tokens if len(tokens) > 1 else tokens[0]
    return shown(OmniVoice._decode_and_post_process(model, chosen, case["rms"], how))


def shown(samples: np.ndarray) -> dict[str, Any]:
    assert samples.dtype == np.float32
    return {
        "length": len(samples),
        "samples": [float(sample) for sample in samples[::SHOWN]],
        "sha256": hashlib.sha256(np.ascontiguousarray(samples).tobytes()).hexdigest()[:32],
    }


if __name__ == "__main__":
    main()
