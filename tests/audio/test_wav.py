"""WAV files: what is written is read by others unchanged, what others write is read, what is wrong is refused."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import wavfile
from torch import Tensor

from mizuoto_runtime.audio.wav import LARGEST_BYTES, read_wav, write_wav
from mizuoto_runtime.errors import InputError

RATE_HZ = 22_050
PCM, FLOAT = 1, 3


def noise(channels: int, length: int) -> Tensor:
    return torch.randn(channels, length, generator=torch.Generator().manual_seed(length))


def wav(
    data: bytes,
    *,
    tag: int = PCM,
    bits: int = 16,
    channels: int = 1,
    rate_hz: int = RATE_HZ,
    frame_bytes: int | None = None,
    data_bytes: int | None = None,
    before: bytes = b"",
    layout: bytes | None = None,
) -> bytes:
    """A WAV file with any of its fields wrong."""
    frame = channels * bits // 8 if frame_bytes is None else frame_bytes
    if layout is None:
        layout = struct.pack("<HHIIHH", tag, channels, rate_hz, rate_hz * frame & 0xFFFFFFFF, frame, bits)
    size = len(data) if data_bytes is None else data_bytes
    body = (
        b"WAVE" + before + b"fmt " + struct.pack("<I", len(layout)) + layout + b"data" + struct.pack("<I", size) + data
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def extensible(tag: int, bits: int, tail: bytes = bytes.fromhex("000000001000800000aa00389b71")) -> bytes:
    head = struct.pack("<HHIIHH", 0xFFFE, 1, RATE_HZ, RATE_HZ * bits // 8, bits // 8, bits)
    return head + struct.pack("<HHIH", 22, bits, 4, tag) + tail


@pytest.mark.parametrize("channels", [1, 2, 6])
@pytest.mark.parametrize("length", [0, 1, 3, 300_000])
def test_what_is_written_is_read_unchanged_by_scipy(tmp_path: Path, channels: int, length: int) -> None:
    samples = noise(channels, length) * 3
    write_wav(tmp_path / "a.wav", samples, RATE_HZ)
    rate_hz, read = wavfile.read(tmp_path / "a.wav")
    assert rate_hz == RATE_HZ
    assert read.dtype == np.float32
    assert np.array_equal(read.reshape(length, channels), samples.numpy().T)


def test_what_is_written_is_read_unchanged(tmp_path: Path) -> None:
    samples = noise(2, 300_000)
    write_wav(tmp_path / "a.wav", samples.T.contiguous().T, 48_000)
    read, rate_hz = read_wav(tmp_path / "a.wav")
    assert rate_hz == 48_000
    assert torch.equal(read, samples)


def test_the_header_is_a_float_one_with_a_fact_chunk(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", noise(2, 7), RATE_HZ)
    content = (tmp_path / "a.wav").read_bytes()
    assert struct.unpack("<4sI4s4sI", content[:20]) == (b"RIFF", len(content) - 8, b"WAVE", b"fmt ", 18)
    assert struct.unpack("<HHIIHHH", content[20:38]) == (3, 2, RATE_HZ, RATE_HZ * 8, 8, 32, 0)
    assert struct.unpack("<4sII", content[38:50]) == (b"fact", 4, 7)
    assert struct.unpack("<4sI", content[50:58]) == (b"data", 56)
    assert len(content) == 58 + 56


def test_not_a_number_is_written_as_it_is(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", torch.tensor([[float("nan"), float("inf"), 2.0]]), RATE_HZ)
    assert np.isnan(wavfile.read(tmp_path / "a.wav")[1][0])


def test_a_sound_beyond_the_format_is_refused_with_the_figures_and_leaves_nothing(tmp_path: Path) -> None:
    samples = torch.zeros(1, 1).expand(1, LARGEST_BYTES // 4)
    with pytest.raises(InputError, match=r"4,294,967,292 bytes .* 4,294,967,295 bytes .*48,695 s at 22,050 Hz"):
        write_wav(tmp_path / "a.wav", samples, RATE_HZ)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    write_wav(path, noise(1, 10), RATE_HZ)
    before = path.read_bytes()
    with pytest.raises(struct.error):
        write_wav(path, noise(1, 10), -1)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_wav(tmp_path / "none" / "a.wav", noise(1, 10), RATE_HZ)


@pytest.mark.parametrize("samples", [torch.zeros(5), torch.zeros(1, 5, dtype=torch.float64), torch.zeros(0, 5)])
def test_samples_of_another_kind_are_refused(tmp_path: Path, samples: Tensor) -> None:
    with pytest.raises(ValueError, match="float32 is wanted"):
        write_wav(tmp_path / "a.wav", samples, RATE_HZ)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("dtype", "scale", "offset"),
    [("uint8", 128, 128), ("int16", 2**15, 0), ("int32", 2**31, 0), ("float32", 1, 0), ("float64", 1, 0)],
)
def test_what_scipy_writes_is_read(tmp_path: Path, dtype: str, scale: int, offset: int, channels: int) -> None:
    rng = np.random.default_rng(3)
    if dtype.startswith("float"):
        values = rng.uniform(-1, 1, (1_000, channels)).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        values = rng.integers(limits.min, limits.max, (1_000, channels), endpoint=True, dtype=dtype)
        values[:2] = [[limits.min] * channels, [limits.max] * channels]
    wavfile.write(tmp_path / "a.wav", 44_100, values)
    samples, rate_hz = read_wav(tmp_path / "a.wav")
    expected = ((values.astype(np.float64) - offset) / scale).astype(np.float32).T
    assert rate_hz == 44_100
    assert samples.dtype == torch.float32
    assert np.array_equal(samples.numpy(), expected)


def test_24_bits_are_read_as_scipy_reads_them(tmp_path: Path) -> None:
    values = [-(2**23), -1, 0, 1, 2**23 - 1, 1_234_567]
    (tmp_path / "a.wav").write_bytes(wav(b"".join(v.to_bytes(3, "little", signed=True) for v in values), bits=24))
    samples, _ = read_wav(tmp_path / "a.wav")
    assert samples[0].tolist() == [value / 2**23 for value in values]
    assert (wavfile.read(tmp_path / "a.wav")[1] / 2**31).astype(np.float32).tolist() == samples[0].tolist()


@pytest.mark.parametrize(("tag", "bits"), [(PCM, 16), (PCM, 24), (FLOAT, 32)])
def test_the_extensible_format_is_read(tmp_path: Path, tag: int, bits: int) -> None:
    data = bytes(range(0, 120)) if tag == PCM else np.linspace(-1, 1, 30, dtype="<f4").tobytes()
    (tmp_path / "plain.wav").write_bytes(wav(data, tag=tag, bits=bits))
    (tmp_path / "extensible.wav").write_bytes(wav(data, layout=extensible(tag, bits)))
    assert torch.equal(read_wav(tmp_path / "plain.wav")[0], read_wav(tmp_path / "extensible.wav")[0])


def test_other_chunks_are_passed_over(tmp_path: Path) -> None:
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"junk" + struct.pack("<I", 0)
    (tmp_path / "a.wav").write_bytes(wav(b"\0\0\0\x40", before=odd) + b"id3 trailing rubbish")
    assert read_wav(tmp_path / "a.wav")[0].tolist() == [[0.0, 0.5]]


REFUSED = {
    "empty": (b"", "0 bytes"),
    "text": (b"This is a text, not a sound at all.", "isn't a WAV"),
    "flac": (b"fLaC" + bytes(60), "looks like FLAC; convert it to WAV"),
    "mp3": (b"ID3\x04" + bytes(60), "looks like MP3"),
    "ogg": (b"OggS" + bytes(60), "looks like Ogg"),
    "aiff": (b"FORM" + bytes(60), "looks like AIFF"),
    "rf64": (b"RF64" + bytes(60), "looks like RF64"),
    "avi": (b"RIFF" + bytes(4) + b"AVI " + bytes(60), "isn't a WAV"),
    "header alone": (wav(b"")[:12], "no data chunk"),
    "cut in the format": (wav(b"\0\0")[:30], "truncated"),
    "cut in the sound": (wav(bytes(100))[:-1], "declares 100 bytes, but 99 are left"),
    "no sound": (wav(b""), "0 bytes"),
    "half a frame": (wav(bytes(5)), "aren't whole frames"),
    "huge sound": (wav(bytes(4), data_bytes=0xFFFFFFFF), "declares 4,294,967,295 bytes"),
    "short format chunk": (wav(bytes(4), layout=bytes(10)), "10 bytes; 16"),
    "a-law": (wav(bytes(4), tag=6, bits=8), "format 6 with 8 bits"),
    "12 bits": (wav(bytes(4), bits=12, frame_bytes=2), "12 bits isn't read"),
    "float of 16 bits": (wav(bytes(4), tag=FLOAT, bits=16), "format 3 with 16 bits"),
    "no channels": (wav(bytes(4), channels=0), "0 channels"),
    "many channels": (wav(bytes(4), channels=65_535, frame_bytes=2), "65535 channels"),
    "no rate": (wav(bytes(4), rate_hz=0), "0 Hz"),
    "huge rate": (wav(bytes(4), rate_hz=0xFFFFFFFF), "4,294,967,295 Hz"),
    "wrong frame": (wav(bytes(4), frame_bytes=3), "3 bytes a frame"),
    "unknown extensible": (wav(bytes(4), layout=extensible(PCM, 16, bytes(14))), "extensible"),
    "not a number": (wav(np.array([0, np.nan], "<f4").tobytes(), tag=FLOAT, bits=32), "finite"),
    "beyond float32": (wav(np.array([1e300], "<f8").tobytes(), tag=FLOAT, bits=64), "finite"),
    "endless chunks": (wav(bytes(4), before=(b"junk" + bytes(4)) * 2_000), "no data chunk"),
    "sound before format": (b"RIFF\x20\0\0\0WAVEdata\x04\0\0\0" + bytes(20), "before its format"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_file_is_refused_with_a_reason(tmp_path: Path, name: str) -> None:
    content, reason = REFUSED[name]
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason) as caught:
        read_wav(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["none.wav", "."])
def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_wav(tmp_path / name)


@given(st.binary(max_size=200), st.integers(0, 60))
def test_no_content_makes_the_reader_fail_otherwise(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, keep: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.wav"
    path.write_bytes(wav(bytes(8))[:keep] + tail)
    try:
        samples, _ = read_wav(path)
    except InputError:
        return
    assert samples.numel() > 0
