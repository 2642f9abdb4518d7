"""A custom node pack for tests: gives ComfyUI a fake device, and tells what lies there.

The device is torch.device("cpu", 0), with $TEST_SPARE_MB beside what ComfyUI leaves for inference. What lies there is
what Mizuoto charges to its simulated device, and what this pack's own model of ComfyUI's kind says it has loaded.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sys

import comfy.model_management as mm
import comfy.model_patcher
import comfy.ops
import torch

FAKE = torch.device("cpu", 0)
SPARE_BYTES = int(os.environ["TEST_SPARE_MB"]) << 20
TOTAL_BYTES = math.ceil(mm.minimum_inference_memory()) + SPARE_BYTES
WIDTH, LAYERS = 1024, 12


class Image(torch.nn.Module):
    def __init__(self):
        super().__init__()
        rng = torch.Generator().manual_seed(1)
        self.layers = torch.nn.ModuleList()
        for _ in range(LAYERS):
            layer = comfy.ops.manual_cast.Linear(WIDTH, WIDTH, bias=False, dtype=torch.float32)
            layer.weight = torch.nn.Parameter(
                torch.randn(WIDTH, WIDTH, generator=rng) / WIDTH**0.5, requires_grad=False
            )
            self.layers.append(layer)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


IMAGE = comfy.model_patcher.ModelPatcher(Image(), FAKE, torch.device("cpu"))


def speech_bytes():
    process = next((module for name, module in list(sys.modules.items()) if name.endswith(".nodes.process")), None)
    session = None if process is None else process._session
    return 0 if session is None else session.manager.device.held_bytes()


def free_memory(dev=None, torch_free_too=False):
    on_device = dev is None or dev == FAKE
    free = TOTAL_BYTES - speech_bytes() - IMAGE.loaded_size() if on_device else 1 << 40
    return (free, 0) if torch_free_too else free


mm.get_free_memory = free_memory
mm.get_torch_device = lambda: FAKE
mm.is_device_cpu = lambda device: device == torch.device("cpu")
mm.soft_empty_cache = lambda force=False: None
mm.vram_state = mm.VRAMState.NORMAL_VRAM
mm.MIN_WEIGHT_MEMORY_RATIO = 0.0
if hasattr(mm, "get_all_torch_devices"):
    mm.get_all_torch_devices = lambda exclude_current=False: [FAKE]


def told(data):
    entries = [entry.model for entry in mm.current_loaded_models]
    speech = sum(entry.loaded_size() for entry in entries if entry is not IMAGE)
    facts = {
        "digest": hashlib.sha256(data.contiguous().numpy().tobytes()).hexdigest(),
        "entries": len(entries),
        "dead": sum(entry.is_dead() for entry in mm.current_loaded_models),
        "speech_bytes": speech,
        "charged_bytes": speech_bytes(),
        "free_bytes": free_memory(),
    }
    return {"ui": {"text": [json.dumps(facts)]}}


class Speech:
    RETURN_TYPES, FUNCTION, CATEGORY, OUTPUT_NODE = (), "hear", "test", True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"audio": ("AUDIO",)}}

    def hear(self, audio):
        return told(audio["waveform"])


class Picture:
    RETURN_TYPES, FUNCTION, CATEGORY, OUTPUT_NODE = (), "draw", "test", True

    @classmethod
    def INPUT_TYPES(cls):
        return {"required": {"number": ("INT", {"default": 0})}}

    def draw(self, number):
        mm.load_models_gpu([IMAGE])
        return told(IMAGE.model(torch.linspace(-1, 1, 4 * WIDTH).reshape(4, WIDTH)))


NODE_CLASS_MAPPINGS = {"TestSpeech": Speech, "TestPicture": Picture}
