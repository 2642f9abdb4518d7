"""The real voice and a small multi-speaker one on a simulated device: the same samples, whatever streams."""

from pathlib import Path

import pytest

from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.session import Session, SpeakRequest
from tests.engines.streaming import check_failing_allocations, check_streaming

JOE = "en_US-joe-medium"


def joe_in(session: Session) -> ModelFiles:
    return session.find("piper", JOE)


@pytest.fixture
def library(voice_path: Path) -> ModelLibrary:
    return ModelLibrary([voice_path.parent.parent])


def test_the_real_voice_streams_exactly(library: ModelLibrary) -> None:
    check_streaming(library, joe_in, SpeakRequest(text="Hello there. And again!", seed=3))


@pytest.mark.parametrize(
    ("share", "retry", "step"), [("none", True, 4), ("halfway", True, 7), ("halfway", False, 6), ("whole", True, 7)]
)
def test_any_allocation_of_a_request_may_fail(library: ModelLibrary, share: str, retry: bool, step: int) -> None:
    request = SpeakRequest(text="Hi.", seed=3)
    assert check_failing_allocations(library, joe_in, request, retry=retry, share=share, step=step) > 4
