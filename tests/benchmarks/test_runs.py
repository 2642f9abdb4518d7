"""The benchmarks run: those figures that don't depend on time are what they must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.figures import Figure, line
from benchmarks.gpu import SECTIONS, run
from benchmarks.gpu_checks.place import find_place
from benchmarks.sections import copied

ROOT = Path(__file__).parents[2]


def test_a_figure_is_missed_on_either_side_of_what_it_must_be() -> None:
    figures = [Figure(name="f", value=value, unit="x", at_most=1.0, at_least=0.9) for value in (0.8, 0.95, 1.1)]
    assert [figure.missed for figure in figures] == [True, False, True]
    assert ["MISSED" in line(figure) for figure in figures] == [True, False, True]


def test_two_interleaved_jobs_copy_what_is_not_resident_once() -> None:
    figures = [*copied.two_jobs(), copied.one_job("three times", copied.IN_A_ROW, 0.5)]
    assert [figure.name for figure in figures if figure.missed] == []
    assert all(figure.peak_bytes is not None and figure.peak_bytes <= (figure.budget_bytes or 0) for figure in figures)


def test_the_gpu_run_without_a_gpu(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "exact", "failing", "graphs"],
        cwd=ROOT, env={**os.environ, "OUT": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))
    assert written["failed"] == {}
    assert len(written["sections"]["exact"]) >= 6 and len(written["sections"]["failing"]) == 3
    if "no CUDA device" in done.stdout:
        assert "skipped: capturing a graph needs a CUDA device" in done.stdout


def test_an_error_in_a_section_is_told_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(place: object) -> list[Figure]:
        raise RuntimeError("a broken section")

    monkeypatch.setitem(SECTIONS, "broken", broken)  # type: ignore[arg-type]
    failed: dict[str, str] = {}
    assert run("broken", find_place(), failed) == []
    assert "a broken section" in failed["broken"]
