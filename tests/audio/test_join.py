"""Pieces joined without clicks, in the memory of the result."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mizuoto_runtime.audio.join import Joiner, join

ROOT = Path(__file__).parent.parent.parent
RATE_HZ = 1_000
FADE_SECONDS = 0.01
FADE = 10


def ones(length: int, channels: int = 1) -> Tensor:
    return torch.ones(channels, length)


def joined(pieces: list[Tensor], silence_seconds: float = 0.0) -> Tensor:
    return join(iter(pieces), RATE_HZ, silence_seconds=silence_seconds, fade_seconds=FADE_SECONDS)


def test_a_single_piece_comes_back_itself() -> None:
    piece = torch.randn(2, 50, generator=torch.Generator().manual_seed(1))
    before = piece.clone()
    assert joined([piece]).data_ptr() == piece.data_ptr()
    assert torch.equal(piece, before)


def test_only_inner_edges_are_faded() -> None:
    sound = joined([ones(100), ones(100), ones(100)])
    assert sound.shape == (1, 300)
    touched = {index for index in range(300) if sound[0, index] != 1}
    assert touched == set(range(90, 110)) | set(range(190, 210))
    assert sound[0, 99] < 0.01 > sound[0, 100]
    assert (sound[0, 90:100].diff() < 0).all()
    assert (sound[0, 100:110].diff() > 0).all()


def test_no_step_is_larger_than_the_fade_makes_it() -> None:
    sound = joined([ones(100), -ones(100), ones(100)], silence_seconds=0.005)
    assert sound.diff().abs().max() < 2 / FADE


def test_silence_lies_between_pieces_alone() -> None:
    sound = joined([ones(100), ones(100), ones(100)], silence_seconds=0.02)
    assert sound.shape == (1, 340)
    silent = {index for index in range(340) if sound[0, index] == 0}
    assert silent == set(range(100, 120)) | set(range(220, 240))
    assert sound[0, 0] == sound[0, -1] == 1


def test_pieces_are_not_changed_and_channels_are_kept() -> None:
    pieces = [torch.stack([torch.full((60,), 0.5), torch.full((60,), -0.25)]) for _ in range(2)]
    copies = [piece.clone() for piece in pieces]
    sound = joined(pieces)
    assert sound[:, 30].tolist() == [0.5, -0.25]
    assert all(torch.equal(piece, copy) for piece, copy in zip(pieces, copies, strict=True))


def test_pieces_shorter_than_the_fade_are_joined() -> None:
    sound = joined([ones(1), ones(3), ones(7), ones(1)])
    assert sound.shape == (1, 12)
    assert torch.isfinite(sound).all()
    assert sound.abs().max() <= 1


def test_empty_pieces_count_as_absent() -> None:
    piece = ones(40)
    assert joined([ones(0), piece, ones(0)], silence_seconds=1.0).data_ptr() == piece.data_ptr()
    assert joined([ones(0, channels=2)]).shape == (2, 0)


def test_no_fade_and_no_silence_is_plain_concatenation() -> None:
    pieces = [torch.randn(1, length, generator=torch.Generator().manual_seed(length)) for length in (5, 9, 2)]
    assert torch.equal(join(pieces, RATE_HZ, fade_seconds=0.0), torch.cat(pieces, dim=1))


def test_nothing_to_join_is_refused() -> None:
    with pytest.raises(ValueError, match="no pieces"):
        join([], RATE_HZ)


@pytest.mark.parametrize(
    "piece", [torch.ones(4), torch.ones(1, 4, dtype=torch.float64), torch.ones(1, 4, dtype=torch.int16)]
)
def test_a_piece_of_another_kind_is_refused(piece: Tensor) -> None:
    with pytest.raises(ValueError, match="2-D float32"):
        Joiner(RATE_HZ).add(piece)


def test_another_number_of_channels_is_refused() -> None:
    joiner = Joiner(RATE_HZ)
    joiner.add(ones(5))
    with pytest.raises(ValueError, match="2 channels, the ones before 1"):
        joiner.add(ones(5, channels=2))


def test_sound_longer_than_a_slab_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(5)
    pieces = [torch.randn(2, length, generator=generator) for length in (130, 7, 64, 300, 1)]
    whole = joined(pieces, silence_seconds=0.03)
    monkeypatch.setattr("mizuoto_runtime.audio.join.SLAB_BYTES", 8 * 64)
    assert torch.equal(joined(pieces, silence_seconds=0.03), whole)


PEAK = """
import re, torch
torch.set_num_threads(1)
from pathlib import Path
from mizuoto_runtime.audio.join import SLAB_BYTES, join
def kib(field):
    return int(re.search(field + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
def make(count):
    for index in range(count):
        yield torch.full((1, 20_000 + 1_000 * (index % 250)), 0.5)
join(make(250), 22050)
before = kib("VmRSS")
sound = join(make(500), 22050, silence_seconds=0.1)
print(4 * sound.numel(), (kib("VmHWM") - before) * 1024, SLAB_BYTES)
"""


def test_peak_memory_is_that_of_the_result_and_a_slab() -> None:
    done = subprocess.run([sys.executable, "-c", PEAK], cwd=ROOT, capture_output=True, text=True, check=True)
    sound_bytes, peak_bytes, slab_bytes = map(int, done.stdout.split())
    assert sound_bytes > 5 * slab_bytes
    assert 0.9 * sound_bytes < peak_bytes < sound_bytes + 1.5 * slab_bytes
