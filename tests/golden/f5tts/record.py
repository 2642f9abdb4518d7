"""Writes the golden data: tiny random checkpoints of every kind, run by upstream itself.

Run in an environment with f5-tts 1.1.22 and vocos 0.1.0 (torch 2.13, CPU), from the repository's root:

    python -m tests.golden.f5tts.record

`models.json` says which weights the checkpoints have (see `checkpoint.py`), `golden.json` the versions, tolerances and
what upstream counted, `golden.safetensors` the mel spectrograms and waveforms that it gave. Upstream runs the chunks of
a text in threads that race for one generator; here they run one after the other.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import soundfile
import torch
from f5_tts.infer import utils_infer
from f5_tts.model import CFM, DiT, UNetT
from safetensors.torch import save_file
from torch import Tensor
from vocos import Vocos

from tests.golden.f5tts.cases import MODELS, REQUESTS, SAMPLES, SPEECH, STRIDE, VOCABULARY, VOCODER
from tests.golden.f5tts.checkpoint import FOLDER, sound, write_model, write_vocoder

KINDS = {"DiT": DiT, "UNetT": UNetT}
MEL_TOLERANCE, WAVE_TOLERANCE = 2e-4, 1e-4
FRAMES_PER_SECOND = 24_000 / 256


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    utils_infer.torchaudio.load = read_sound
    utils_infer.ThreadPoolExecutor = lambda: ThreadPoolExecutor(max_workers=1)
    arrays: dict[str, Tensor] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        known = describe(folder)
        (FOLDER / "models.json").write_text(json.dumps(known, separators=(",", ":")) + "\n", encoding="utf-8")
        models = {key: load(write_model(folder / key, key, known=known), key) for key in MODELS}
        vocoder = utils_infer.load_vocoder(is_local=True, local_path=str(write_vocoder(folder / "vocos", known)))
        samples = [record_sample(models[case["model"]], case, f"sample{number}", arrays)
                   for number, case in enumerate(SAMPLES)]  # fmt: skip
        requests = [record_request(models[case["model"]], vocoder, case, folder, f"request{number}", arrays)
                    for number, case in enumerate(REQUESTS)]  # fmt: skip
        speech = [record_speech(models[case["model"]], vocoder, case, f"speech{number}", arrays)
                  for number, case in enumerate(SPEECH)]  # fmt: skip
    versions = {name: metadata.version(name) for name in ("f5-tts", "vocos", "torch", "torchaudio", "torchdiffeq")}
    tolerances = {"mel": MEL_TOLERANCE, "wave": WAVE_TOLERANCE}
    golden = {"versions": versions, "tolerances": tolerances}
    golden |= {"samples": samples, "speech": speech, "requests": requests}
    (FOLDER / "golden.json").write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    save_file(arrays, FOLDER / "golden.safetensors")
    print(f"{sum(path.stat().st_size for path in FOLDER.iterdir() if path.is_file()):,} bytes in all")


def describe(folder: Path) -> dict[str, dict[str, list[int]]]:
    """Names and shapes of the weights that upstream's classes have for each model, and for the vocoder."""
    known = {}
    for name, model in MODELS.items():
        transformer = KINDS[model["backbone"]](**model["arch"], text_num_embeds=len(VOCABULARY), mel_dim=100)
        known[name] = shapes_of(CFM(transformer=transformer, mel_spec_kwargs={"mel_spec_type": "vocos"}))
    import yaml

    config = folder / "vocos.yaml"
    config.write_text(yaml.safe_dump(VOCODER), encoding="utf-8")
    known["vocos"] = shapes_of(Vocos.from_hparams(str(config)))
    return known


def shapes_of(module: torch.nn.Module) -> dict[str, list[int]]:
    return {name: list(tensor.shape) for name, tensor in module.state_dict().items()}


def load(folder: Path, name: str) -> CFM:
    model = MODELS[name]
    (checkpoint,) = folder.glob("model_*")
    loaded: CFM = utils_infer.load_model(
        KINDS[model["backbone"]],
        model["arch"],
        str(checkpoint),
        mel_spec_type=model.get("mel_spec_type", "vocos"),
        vocab_file=str(folder / "vocab.txt"),
        device="cpu",
    )
    return loaded.eval()


def record_sample(model: CFM, case: dict[str, Any], key: str, arrays: dict[str, Tensor]) -> dict[str, Any]:
    """Run one call of `CFM.sample`; returns how long its rows are."""
    mels = [model.mel_spec(sound(**row["sound"]))[0].T for row in case["rows"]]
    edit_mask = None
    if "edit" in case:
        mels, edit_mask = edited(mels[0], **case["edit"])
    lengths = torch.tensor([len(mel) for mel in mels])
    durations = torch.tensor([row["duration"] for row in case["rows"]])
    arrays[f"{key}.reference"] = mels[0][:7].contiguous()
    model.odeint_kwargs = {"method": case.get("method", "euler")}
    with torch.inference_mode():
        made, _ = model.sample(
            cond=torch.nn.utils.rnn.pad_sequence(mels, batch_first=True),
            text=[row["tokens"] for row in case["rows"]],
            duration=durations,
            lens=lengths,
            steps=case["steps"],
            cfg_strength=case["cfg_strength"],
            sway_sampling_coef=case["sway_sampling_coef"],
            seed=case["seed"],
            edit_mask=edit_mask,
        )
    model.odeint_kwargs = {"method": "euler"}
    kept = [mel[int(length) :] for mel, length in zip(made, lengths, strict=True)] if edit_mask is None else list(made)
    arrays[f"{key}.mel"] = torch.cat(kept).contiguous()
    print(key, case["model"], tuple(made.shape), f"largest {arrays[f'{key}.mel'].abs().max():.1f}")
    return {"frames": [len(mel) for mel in kept], "longest": made.shape[1]}


def edited(mel: Tensor, parts: list[list[float]], durations: list[float]) -> tuple[list[Tensor], Tensor]:
    """As upstream's script `speech_edit.py` puts kept and new frames together."""
    pieces, kept, offset = [], [], 0
    for (start, end), seconds in zip(parts, durations, strict=True):
        first, last, new = (round(value * FRAMES_PER_SECOND) for value in (start, end, seconds))
        pieces += [mel[offset:first], torch.zeros(new, mel.shape[1])]
        kept += [True] * (first - offset) + [False] * new
        offset = last
    pieces.append(mel[offset:])
    kept += [True] * len(pieces[-1])
    return [torch.cat(pieces)], torch.tensor([kept])


def record_request(
    model: CFM, vocoder: Vocos, case: dict[str, Any], folder: Path, key: str, arrays: dict[str, Tensor]
) -> dict[str, Any]:
    """Run upstream from a 16-bit file on, which soundfile reads; returns the tokens of each piece, and the length."""
    path = folder / f"{key}.wav"
    soundfile.write(path, sound(**case["sound"]).T.numpy(), case["sound"]["rate_hz"], subtype="PCM_16")
    torch.manual_seed(case["seed"])
    pieces: list[int] = []
    inner = model.sample

    def sample(**kwargs: Any) -> Any:
        pieces.append(len(kwargs["text"][0]))
        return inner(**kwargs)

    model.sample = sample
    prepared, text = utils_infer.preprocess_ref_audio_text(str(path), case["reference_text"])
    wave, _, _ = utils_infer.infer_process(
        prepared, text, case["text"], model, vocoder, progress=None, device="cpu", **case["options"]
    )
    model.sample = inner
    arrays[f"{key}.wave"] = torch.from_numpy(wave)[::STRIDE].float().contiguous()
    print(key, case["model"], wave.shape, f"largest {abs(wave).max():.2f}", pieces)
    return {"tokens": pieces, "length": len(wave)}


def read_sound(path: str) -> tuple[Tensor, int]:
    samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(samples.T), rate_hz


def record_speech(
    model: CFM, vocoder: Vocos, case: dict[str, Any], key: str, arrays: dict[str, Tensor]
) -> dict[str, Any]:
    """Run one call of `infer_batch_process`; returns the tokens and durations of its chunks."""
    calls: list[dict[str, Any]] = []
    inner = model.sample

    def sample(**kwargs: Any) -> Any:
        result = inner(**kwargs)
        calls.append({"tokens": kwargs["text"][0], "frames": result[0].shape[1]})
        return result

    model.sample = sample
    torch.manual_seed(case["seed"])
    try:
        wave, rate_hz, mel = next(
            utils_infer.infer_batch_process(
                (sound(**case["sound"]), case["sound"]["rate_hz"]),
                case["reference_text"],
                case["chunks"],
                model,
                vocoder,
                progress=None,
                device="cpu",
                **case["options"],
            )
        )
    finally:
        model.sample = inner
    assert rate_hz == 24_000
    arrays[f"{key}.mel"] = torch.from_numpy(mel).T.contiguous()
    arrays[f"{key}.wave"] = torch.from_numpy(wave).float().contiguous()
    print(key, case["model"], mel.shape, wave.shape, f"largest {abs(wave).max():.2f}", calls)
    return {"chunks": calls}


if __name__ == "__main__":
    main()
