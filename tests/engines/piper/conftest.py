"""A session with the demo's real voice."""

from pathlib import Path

import pytest

from devtools.voice import place_voice
from mizuoto_runtime.library import ModelFiles, ModelLibrary
from mizuoto_runtime.session import Session
from mizuoto_runtime.settings import resolve

JOE = "en_US-joe-medium"


@pytest.fixture(scope="session")
def voice_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real voice's `.onnx`, in a folder that may be written to."""
    return place_voice(tmp_path_factory.mktemp("voices"))


@pytest.fixture(scope="session")
def session(voice_path: Path) -> Session:
    return Session(resolve(environment={}), ModelLibrary([voice_path.parent.parent]))


@pytest.fixture(scope="session")
def joe(session: Session) -> ModelFiles:
    return session.find("piper", JOE)
