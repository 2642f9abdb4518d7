"""Texts with numbers: as upstream spells them out, with the packages themselves."""

from __future__ import annotations

import json
import sys

import pytest

from mizuoto_runtime.engines.omnivoice.normalise import normalise
from mizuoto_runtime.errors import InputError, MissingDependency
from mizuoto_runtime.session import Session, SpeakRequest
from tests.engines.omnivoice.models import SINGLE, recorded
from tests.golden.omnivoice.checkpoint import FOLDER

TEXTS: list[list[str]] = json.loads((FOLDER / "text.json").read_text(encoding="utf-8"))["normalised"]


@pytest.mark.parametrize(("text", "language", "spoken"), TEXTS)
def test_a_text_is_spelled_out_as_upstream_does(text: str, language: str, spoken: str) -> None:
    assert normalise(text, language) == spoken


@pytest.mark.parametrize(
    ("text", "spoken"),
    [("John's #1 hit of 2", "John's #1 hit of two"), ("version 2.0.3", "version two.zero point three")],
)
def test_what_the_english_grammar_cannot_do_is_left(text: str, spoken: str) -> None:
    assert normalise(text, "en") == spoken


@pytest.mark.parametrize("language", ["en", "zh", "de"])
@pytest.mark.parametrize("text", ["[", "]" * 50 + "[" * 50, "\x00", "[[3]] ["])
def test_brackets_without_partners_do_no_harm(text: str, language: str) -> None:
    assert "[" in normalise(text, language) or "[" not in text


def test_a_number_longer_than_any_that_python_reads_stays() -> None:
    assert normalise("9" * 5000 + " und 3", "de") == "9" * 5000 + " und drei"


@pytest.mark.parametrize(("language", "package"), [("en", "wetext"), ("zh", "wetext"), ("de", "num2words")])
def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch, language: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=f"needs the package {package}: pip install wetext"):
        normalise("3", language)


def said(session: Session, text: str, **options: object) -> tuple[int, object]:
    """How many samples the text takes, and what the output says of it."""
    files = session.find("omnivoice", recorded(SINGLE[0])[0].model)
    output = session.speak(files, SpeakRequest(text=text, options={"num_step": 1, **options}))
    return output.audio.samples.shape[1], output.meta["applied"].get("normalized_text")  # type: ignore[attr-defined]


def test_a_request_may_ask_for_it(session: Session) -> None:
    written, spelled = "I have 1,234,567 apples.", normalise("I have 1,234,567 apples.", "")
    assert said(session, written, normalize_text=True) == (said(session, spelled)[0], spelled)
    assert said(session, written)[1] is None


def test_a_text_of_which_nothing_is_left_is_refused(session: Session) -> None:
    with pytest.raises(InputError, match="nothing is left of the text once it is normalised"):
        said(session, "啊", normalize_text=True)
