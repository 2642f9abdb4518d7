"""What the READMEs tell people to type is understood, and both languages tell the same."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from devtools.cli import _parse
from mizuoto_runtime.cli import _parser
from mizuoto_runtime.engines.registry import all_engines
from mizuoto_runtime.settings import SETTINGS, resolve

ROOT = Path(__file__).parent.parent
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def commands(readme: Path) -> list[str]:
    return [line for block in BLOCK.findall(readme.read_text(encoding="utf-8")) for line in block.splitlines()]


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
def test_every_command_is_understood(readme: Path) -> None:
    understood = 0
    for line in commands(readme):
        words = shlex.split(line)
        if words[:2] == ["python3", "dev.py"]:
            assert _parse(words[2:])
        elif words[:3] == ["python", "-m", "mizuoto_runtime"]:
            assert _parser().parse_args(words[3:])
        else:
            assert words[0] in ("cd", "git", "python"), line
            continue
        understood += 1
    assert understood >= 10


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
def test_the_settings_file_shown_is_valid(readme: Path, tmp_path: Path) -> None:
    (shown,) = re.findall(r"```toml\n(.*?)```", readme.read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "mizuoto.toml"
    path.write_text(shown, encoding="utf-8")
    assert resolve(environment={}, config=path).text("compute.vram_mode") == "low"


@pytest.mark.parametrize("page", ["memory.md", "memory.zh-CN.md"])
def test_the_table_of_settings_is_complete(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([a-z_.<>]+)` \| [^`|]*", text, re.MULTILINE))
    assert named == {re.sub(r"^engines\.\w+", "engines.<id>", setting.name) for setting in SETTINGS}


def test_both_languages_show_the_same_commands() -> None:
    english, chinese = (
        [re.sub(r"<.*>", "<>", line) for line in commands(readme)] for readme in READMES
    )
    assert english == chinese


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.name)
def test_every_engine_and_every_node_is_in_the_tables(
    readme: Path, pack_module: Callable[[str], ModuleType]
) -> None:
    text = readme.read_text(encoding="utf-8")
    declared = pack_module("nodes.declare").node_declarations(all_engines())
    assert [spec.label for spec in all_engines() if f"| {spec.label} |" not in text] == []
    assert [node.label for node in declared if node.label not in text] == []


def test_ci_runs_what_the_readme_says() -> None:
    assert "python3 dev.py test" in commands(READMES[0])
    assert (ROOT / ".ci" / "run").read_text(encoding="utf-8").rstrip().endswith("python3 dev.py test")
