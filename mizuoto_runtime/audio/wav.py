"""WAV files: 32-bit float ones written, PCM and float ones read. Format: Microsoft's RIFF specification of 1994.

The reader trusts nothing: every size that a header declares is checked against the file.
"""

from __future__ import annotations

import struct
import uuid
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
LARGEST_BYTES = 0xFFFFFFFF
LOWEST_RATE_HZ, HIGHEST_RATE_HZ = 1_000, 768_000
MOST_CHANNELS = 64
BLOCK_FRAMES = 1 << 18

_FLOAT_BYTES = 4
_WRITTEN_HEADER_BYTES = 58
_MOST_CHUNKS = 1_000
_SUBFORMAT_TAIL = bytes.fromhex("000000001000800000aa00389b71")
_OTHER_FORMATS = {
    b"fLaC": "FLAC",
    b"OggS": "Ogg",
    b"ID3": "MP3",
    b"\xff\xfb": "MP3",
    b"FORM": "AIFF",
    b"RF64": "RF64, a WAV of more than 4 GiB",
    b"RIFX": "a big-endian WAV",
}


def write_wav(path: Path, samples: Tensor, rate_hz: int) -> None:
    """Write (channels, length) float32 samples, untouched, as 32-bit float WAV. A file at `path` is replaced whole.

    InputError if it would exceed what a WAV file can hold; OSError if the folder can't be written.
    """
    if samples.ndim != 2 or samples.dtype != torch.float32 or not 0 < samples.shape[0] <= MOST_CHANNELS:
        raise ValueError(f"samples are {tuple(samples.shape)} {samples.dtype}; (channels, length) float32 is wanted")
    channels, length = samples.shape
    size_bytes = channels * length * _FLOAT_BYTES
    if size_bytes + _WRITTEN_HEADER_BYTES > LARGEST_BYTES:
        longest_seconds = LARGEST_BYTES // (channels * _FLOAT_BYTES * rate_hz)
        raise InputError(
            f"{size_bytes:,} bytes of sound don't fit into a WAV file, which holds {LARGEST_BYTES:,} bytes "
            f"({longest_seconds:,} s at {rate_hz:,} Hz); split the text"
        )
    part = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            file.write(_header(channels, length, rate_hz))
            for start in range(0, length, BLOCK_FRAMES):
                block = samples[:, start : start + BLOCK_FRAMES].detach().cpu().numpy()
                file.write(np.ascontiguousarray(block.T, dtype="<f4").data)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _header(channels: int, length: int, rate_hz: int) -> bytes:
    frame_bytes = channels * _FLOAT_BYTES
    data_bytes = length * frame_bytes
    layout = struct.pack("<HHIIHHH", FLOAT, channels, rate_hz, rate_hz * frame_bytes, frame_bytes, 8 * _FLOAT_BYTES, 0)
    return b"".join(
        (
            b"RIFF" + struct.pack("<I", _WRITTEN_HEADER_BYTES - 8 + data_bytes) + b"WAVE",
            b"fmt " + struct.pack("<I", len(layout)) + layout,
            b"fact" + struct.pack("<II", 4, length),
            b"data" + struct.pack("<I", data_bytes),
        )
    )


def read_wav(path: Path) -> tuple[Tensor, int]:
    """Read a WAV file: its samples, (channels, length) float32 nominally within -1 … 1, and its rate in Hz.

    PCM of 8, 16, 24 or 32 bits and float of 32 or 64 bits. InputError for any other, damaged or empty file.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file")
    with path.open("rb") as file:
        size_bytes = path.stat().st_size
        layout, start, data_bytes = _find_sound(_Reader(path, file, size_bytes))
        file.seek(start)
        samples = _decode(path, file, layout, data_bytes // layout.frame_bytes)
    return samples, layout.rate_hz


class _Layout(NamedTuple):
    is_float: bool
    bits: int
    channels: int
    rate_hz: int

    @property
    def frame_bytes(self) -> int:
        return self.channels * self.bits // 8


class _Reader:
    """A file read front to back; what it lacks is an InputError that says so."""

    def __init__(self, path: Path, file: BinaryIO, size_bytes: int) -> None:
        self._path = path
        self._file = file
        self.size_bytes = size_bytes
        self.position = 0

    def error(self, problem: str) -> InputError:
        return InputError(f"{self._path}: {problem}")

    def read(self, size_bytes: int) -> bytes:
        data = self._file.read(size_bytes)
        self.position += len(data)
        if len(data) != size_bytes:
            raise self.error(f"the file ends after {self.position:,} bytes, inside its header; it is truncated")
        return data

    def skip_to(self, position: int) -> None:
        self._file.seek(position)
        self.position = position


def _find_sound(reader: _Reader) -> tuple[_Layout, int, int]:
    """The layout, and where the samples begin and how many bytes they take."""
    _check_magic(reader)
    layout = None
    for _ in range(_MOST_CHUNKS):
        if reader.position + 8 > reader.size_bytes:
            break
        name, size_bytes = struct.unpack("<4sI", reader.read(8))
        start, left = reader.position, reader.size_bytes - reader.position
        if size_bytes > left:
            raise reader.error(f"chunk {name!r} declares {size_bytes:,} bytes, but {left:,} are left; it is truncated")
        if name == b"fmt ":
            layout = _layout(reader, size_bytes)
        elif name == b"data" and layout is None:
            raise reader.error("the sound comes before its format, so it can't be read; convert it to WAV anew")
        elif name == b"data" and layout is not None:
            return layout, start, _checked_size(reader, layout, size_bytes)
        reader.skip_to(start + size_bytes + size_bytes % 2)
    raise reader.error("the file holds no sound (no data chunk); export it again as WAV")


def _check_magic(reader: _Reader) -> None:
    if reader.size_bytes < 12:
        raise reader.error(f"the file has {reader.size_bytes} bytes; that is no WAV file")
    magic = reader.read(12)
    if magic[:4] != b"RIFF" or magic[8:] != b"WAVE":
        known = next((name for start, name in _OTHER_FORMATS.items() if magic.startswith(start)), "")
        looks = f"it looks like {known}" if known else "it isn't a WAV file"
        raise reader.error(f"{looks}; convert it to WAV, 16-bit PCM or 32-bit float")


def _layout(reader: _Reader, size_bytes: int) -> _Layout:
    if size_bytes < 16:
        raise reader.error(f"the format chunk has {size_bytes} bytes; 16 are the least")
    head = reader.read(min(size_bytes, 40))
    tag, channels, rate_hz, _, frame_bytes, bits = struct.unpack("<HHIIHH", head[:16])
    if tag == EXTENSIBLE:
        if len(head) < 40 or head[26:40] != _SUBFORMAT_TAIL:
            raise reader.error("its extensible format is unknown; convert it to 16-bit PCM or 32-bit float WAV")
        (tag,) = struct.unpack("<H", head[24:26])
    if (tag, bits) not in {(PCM, 8), (PCM, 16), (PCM, 24), (PCM, 32), (FLOAT, 32), (FLOAT, 64)}:
        raise reader.error(f"format {tag} with {bits} bits isn't read; convert it to 16-bit PCM or 32-bit float WAV")
    if not 0 < channels <= MOST_CHANNELS:
        raise reader.error(f"the header says {channels} channels; 1 to {MOST_CHANNELS} are read")
    if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
        raise reader.error(f"the header says {rate_hz:,} Hz; {LOWEST_RATE_HZ:,} to {HIGHEST_RATE_HZ:,} are read")
    layout = _Layout(tag == FLOAT, bits, channels, rate_hz)
    if frame_bytes != layout.frame_bytes:
        raise reader.error(f"the header says {frame_bytes} bytes a frame; {channels} × {bits} bits aren't that many")
    return layout


def _checked_size(reader: _Reader, layout: _Layout, size_bytes: int) -> int:
    if not size_bytes:
        raise reader.error("the file holds no sound: its data is 0 bytes; record or export it again")
    if size_bytes % layout.frame_bytes:
        raise reader.error(f"{size_bytes:,} bytes of sound aren't whole frames of {layout.frame_bytes} bytes")
    return size_bytes


def _decode(path: Path, file: BinaryIO, layout: _Layout, frames: int) -> Tensor:
    samples = torch.empty(layout.channels, frames)
    for start in range(0, frames, BLOCK_FRAMES):
        count = min(BLOCK_FRAMES, frames - start)
        data = file.read(count * layout.frame_bytes)
        if len(data) != count * layout.frame_bytes:
            raise InputError(f"{path}: the file became shorter while it was read; try again")
        block = torch.from_numpy(_floats(data, layout).reshape(count, layout.channels).T)
        if not torch.isfinite(block).all():
            seconds = start / layout.rate_hz
            raise InputError(f"{path}: samples after {seconds:.1f} s aren't finite numbers; export it again")
        samples[:, start : start + count] = block
    return samples


def _floats(data: bytes, layout: _Layout) -> NDArray[np.float32]:
    """Interleaved samples as float32, full scale 1."""
    if layout.is_float:
        with np.errstate(over="ignore"):  # becomes infinite, and is refused as such
            return np.frombuffer(data, dtype=f"<f{layout.bits // 8}").astype(np.float32)
    return (_whole(data, layout.bits) / 2**31).astype(np.float32)


def _whole(data: bytes, bits: int) -> NDArray[np.int32]:
    """PCM samples as int32, full scale 2³¹."""
    if bits == 8:
        return (np.frombuffer(data, dtype=np.uint8).astype(np.int32) - 128) << 24
    if bits == 16:
        return np.frombuffer(data, dtype="<i2").astype(np.int32) << 16
    if bits == 24:
        wide = np.zeros((len(data) // 3, 4), dtype=np.uint8)
        wide[:, 1:] = np.frombuffer(data, dtype=np.uint8).reshape(-1, 3)
        return wide.reshape(-1).view("<i4").astype(np.int32)
    return np.frombuffer(data, dtype="<i4").astype(np.int32)
