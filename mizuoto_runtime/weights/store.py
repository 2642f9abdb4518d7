"""Writes safetensors files tensor by tensor, so that converting a model needs no second copy of it in memory.

Format: https://github.com/huggingface/safetensors (8 bytes of header length, a JSON header, the data).
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .raw import RawTensor

_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
ALIGNMENT_BYTES = 64


def write_safetensors(file: BinaryIO, tensors: Mapping[str, RawTensor], metadata: Mapping[str, str]) -> None:
    """Write `tensors` under the names that are their keys."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    position = 0
    for name, tensor in tensors.items():
        end = position + len(tensor.data)
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": tensor.shape, "data_offsets": (position, end)}
        position = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-(8 + len(encoded)) % ALIGNMENT_BYTES)
    file.write(len(encoded).to_bytes(8, "little") + encoded)
    for tensor in tensors.values():
        file.write(tensor.data)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` when the block ends well, whole or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
