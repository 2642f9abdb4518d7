"""What the READMEs say of ComfyUI: its folders, and the nodes' names as the interface shows them."""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path

import pytest

from mizuoto_runtime.engines.dummy.phases import BYTES_PER_SAMPLE, MAX_OUTPUT_BYTES, RATE_HZ

ROOT = Path(__file__).resolve().parent.parent.parent
READMES = {"en": ROOT / "README.md", "zh": ROOT / "README.zh-CN.md"}
PLACE = "ComfyUI/custom_nodes/mizuoto"
ASCII_BRACKETS = re.compile(r"(?<!\])\([^()]*[\u4e00-\u9fff][^()]*\)")


def names(language: str) -> dict[str, str]:
    """Node id → its name in the interface."""
    path = ROOT / "locales" / language / "nodeDefs.json"
    return {key: node["display_name"] for key, node in json.loads(path.read_text(encoding="utf-8")).items()}


@pytest.mark.parametrize("language", READMES)
def test_voices_are_fetched_into_the_folder_that_comfyui_reads(language: str) -> None:
    text = READMES[language].read_text(encoding="utf-8")
    assert f"git clone <> {PLACE.rpartition('/')[2]}" in re.sub("<.*>", "<>", text)
    named = re.findall(r"--setting paths\.models=(\S+)", text)
    assert {posixpath.normpath(posixpath.join(PLACE, path)) for path in named} == {"ComfyUI/models/mizuoto"}
    assert len(named) == len(re.findall("models fetch .* --setting", text)) == 2


def test_the_chinese_readme_gives_each_node_both_names() -> None:
    text = READMES["zh"].read_text(encoding="utf-8")
    english, chinese = names("en"), names("zh")
    assert [name for key, name in chinese.items() if f"{name}（{english[key]}）" not in text] == []
    assert "报告（report）" in text


def test_the_english_readme_names_each_node() -> None:
    table = READMES["en"].read_text(encoding="utf-8").partition("## Nodes")[2].partition("\n## ")[0]
    assert [name for name in names("en").values() if not re.search(rf"^\|.*\b{name}\b.*\|", table, re.MULTILINE)] == []


def test_chinese_stands_in_chinese_brackets() -> None:
    pages = [*sorted((ROOT / "web" / "docs").glob("*/zh.md")), *sorted((ROOT / "locales" / "zh").iterdir())]
    for path in (READMES["zh"], *pages):
        found = ASCII_BRACKETS.findall(path.read_text(encoding="utf-8"))
        assert found == [], path.name


@pytest.mark.parametrize(("page", "hours"), [("MizuotoDummyTones.md", "hours"), ("MizuotoDummyTones/zh.md", "小时")])
def test_the_dummys_help_says_how_much_is_too_much(page: str, hours: str) -> None:
    text = (ROOT / "web" / "docs" / page).read_text(encoding="utf-8")
    limit_hours = MAX_OUTPUT_BYTES / BYTES_PER_SAMPLE / RATE_HZ / 3600
    assert f" {MAX_OUTPUT_BYTES >> 30} GiB" in text
    assert f" {limit_hours:.0f} {hours}" in text
