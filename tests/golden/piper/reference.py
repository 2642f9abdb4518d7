"""Runs an exported voice with onnxruntime on given noise, and says what it computes on the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper


@dataclass(frozen=True)
class Reference:
    """durations: (symbols), in frames. latents: (1, channels, frames), before the flow. samples: (length)."""

    durations: np.ndarray
    latents: np.ndarray
    samples: np.ndarray


class ReferenceVoice:
    """A voice whose two draws of normal numbers are inputs instead."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        model = onnx.load(path)
        self.noises = _noises_as_inputs(model.graph)
        self.takes_speaker = any(value.name == "sid" for value in model.graph.input)
        ceil = next(node for node in model.graph.node if node.op_type == "Ceil")
        for name in (ceil.output[0], _latents(model.graph, self.noises[-1])):
            model.graph.output.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    @property
    def draws_durations(self) -> bool:
        return len(self.noises) == 2

    def run(
        self,
        ids: np.ndarray,
        scales: tuple[float, float, float],
        *,
        duration_noise: np.ndarray,
        latent_noise: np.ndarray,
        speaker_id: int | None = None,
    ) -> Reference:
        """ids: int64 (1, symbols). scales: noise scale, length scale, noise w. The noises as `engines.piper.model`."""
        feeds = self._feeds(ids, scales, duration_noise, speaker_id) | {self.noises[-1]: latent_noise}
        samples, durations, latents = self.session.run(None, feeds)
        return Reference(durations.reshape(-1).astype(np.int64), latents, samples.reshape(-1))

    def durations(
        self,
        ids: np.ndarray,
        scales: tuple[float, float, float],
        *,
        duration_noise: np.ndarray,
        speaker_id: int | None = None,
    ) -> np.ndarray:
        """int64 (symbols)."""
        feeds = self._feeds(ids, scales, duration_noise, speaker_id)
        feeds[self.noises[-1]] = np.zeros((1, 1, 1), dtype=np.float32)
        return self.session.run([self.session.get_outputs()[1].name], feeds)[0].reshape(-1).astype(np.int64)

    def _feeds(
        self, ids: np.ndarray, scales: tuple[float, float, float], duration_noise: np.ndarray, speaker_id: int | None
    ) -> dict[str, np.ndarray]:
        feeds = {
            "input": ids,
            "input_lengths": np.array([ids.shape[1]], dtype=np.int64),
            "scales": np.array(scales, dtype=np.float32),
        }
        if self.takes_speaker:
            feeds["sid"] = np.array([speaker_id], dtype=np.int64)
        if self.draws_durations:
            feeds[self.noises[0]] = duration_noise
        return feeds


def _noises_as_inputs(graph: onnx.GraphProto) -> list[str]:
    draws = [node for node in graph.node if node.op_type == "RandomNormalLike"]
    for node in draws:
        graph.node.remove(node)
        graph.input.append(helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, None))
    return [node.output[0] for node in draws]


def _latents(graph: onnx.GraphProto, noise: str) -> str:
    """What the second draw becomes: × exp(log scale), × noise scale, + mean."""
    name = noise
    for op_type in ("Mul", "Mul", "Add"):
        name = next(node.output[0] for node in graph.node if node.op_type == op_type and name in node.input)
    return name
