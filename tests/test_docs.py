"""The page on adding an engine names what is there, all of it, and the same in both languages."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from mizuoto_runtime.engines.registry import ENGINES
from mizuoto_runtime.engines.spec import EngineSpec, Param, Phase

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "docs" / "add-an-engine.md", ROOT / "docs" / "add-an-engine.zh-CN.md"]
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.<>-]+(/[\w.<>-]+)*(/|\.(py|md|json|toml|txt))(::\w+)?")
DEFINED = r"^(?:class |def |async def )?{name}\b"
LINK = re.compile(r"\]\(([^)#:]+)\)")


def spans(page: Path) -> list[str]:
    return CODE.findall(page.read_text(encoding="utf-8"))


def paths(page: Path) -> list[str]:
    return [span for span in spans(page) if PATH.fullmatch(span)]


def exists(path: str) -> bool:
    """Whether the file, and the name in it, are there; for `<id>`, and for a bare name, of two engines at least."""
    if "/" not in path and not (ROOT / path).exists():
        path = f"mizuoto_runtime/engines/<id>/{path}"
    if "<id>" in path:
        return sum(exists(path.replace("<id>", engine)) for engine in ENGINES) >= 2
    file, _, name = path.partition("::")
    if not name:
        return (ROOT / file).exists()
    text = (ROOT / file).read_text(encoding="utf-8")
    return re.search(DEFINED.format(name=name), text, re.MULTILINE) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_exists(page: Path) -> None:
    assert len(paths(page)) > 30
    assert [path for path in paths(page) if not exists(path)] == []


def test_a_path_that_is_gone_is_noticed() -> None:
    assert not exists("mizuoto_runtime/engines/<id>/architecture.py")
    assert not exists("tests/engines/streaming.py::check_nothing")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.parametrize("declared", [EngineSpec, Phase, Param])
def test_every_field_is_in_its_table(page: Path, declared: type) -> None:
    text = page.read_text(encoding="utf-8")
    _, _, table = text.partition(f"| `{declared.__name__}` |")
    rows = [row.split("|")[1] for row in table.split("\n\n")[0].splitlines() if row.startswith("| `")]
    assert {name for row in rows for name in CODE.findall(row)} == {each.name for each in fields(declared)}


def test_both_languages_name_the_same_things() -> None:
    english, chinese = (sorted(spans(page)) for page in PAGES)
    assert english == chinese


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize(("page", "target"), [("README.md", PAGES[0]), ("README.zh-CN.md", PAGES[1])])
def test_the_readmes_lead_there(page: str, target: Path) -> None:
    assert f"(docs/{target.name})" in (ROOT / page).read_text(encoding="utf-8")


def test_the_contributors_notes_lead_to_both() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert all(f"(docs/{page.name})" in text for page in PAGES)
