"""Recordings that no engine can follow."""

import pytest
import torch
from torch import Tensor

from mizuoto_runtime.audio.recording import recording_batch, short_notes
from mizuoto_runtime.errors import InputError


@pytest.mark.parametrize(
    ("samples", "peak"),
    [
        (torch.tensor([[-32768, 12]], dtype=torch.int16), "32,768"),
        (torch.tensor([[0.5, 1e30]]), r"1e\+30"),
        (torch.tensor([[101.0]]), "101"),
    ],
)
def test_samples_far_above_full_scale_are_refused(samples: Tensor, peak: str) -> None:
    with pytest.raises(InputError, match=f"peak is {peak} times full scale; samples from -1 to 1 are needed"):
        recording_batch(samples, 24_000)


def test_a_recording_may_be_somewhat_above_full_scale() -> None:
    assert recording_batch(torch.tensor([[-2.5, 1.0]]), 24_000).shape == (1, 1, 2)


def test_a_note_says_that_a_recording_is_short() -> None:
    assert short_notes(0.25, "3 to 12 s") == ("the reference has 0.25 s of sound; 3 to 12 s are best",)
    assert short_notes(0.989, "3 s") and not short_notes(0.9996, "3 s") and not short_notes(1.0, "3 s")
