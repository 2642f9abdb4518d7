"""Locale files and help pages say what the declarations say, in every language."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
LANGUAGES = ("en", "zh")
FILES = ("main.json", "nodeDefs.json", "settings.json")


def locale(language: str, name: str) -> dict:
    return json.loads((ROOT / "locales" / language / name).read_text(encoding="utf-8"))


def leaves(tree: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    else:
        yield path, tree


@pytest.fixture(scope="module")
def texts(pack_module: Callable[[str], ModuleType]) -> ModuleType:
    return pack_module("nodes.texts")


@pytest.fixture(scope="module")
def nodes(pack_module: Callable[[str], ModuleType]) -> tuple:
    specs = pack_module("mizuoto_runtime.engines.registry").all_engines()
    return pack_module("nodes.declare").node_declarations(specs)


def test_english_follows_from_the_declarations(
    texts: ModuleType, nodes: tuple, pack_module: Callable[[str], ModuleType]
) -> None:
    advice = "run: python3 locales/update.py"
    assert locale("en", "nodeDefs.json") == texts.node_defs(nodes), advice
    assert locale("en", "main.json") == texts.main_texts(nodes), advice
    settings = pack_module("mizuoto_runtime.settings").SETTINGS
    assert locale("en", "settings.json") == texts.setting_texts(settings), advice


@pytest.mark.parametrize("name", FILES)
def test_languages_have_the_same_keys(name: str) -> None:
    assert [path for path, _ in leaves(locale("zh", name))] == [path for path, _ in leaves(locale("en", name))]


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_are_no_files_beside_these(language: str) -> None:
    assert sorted(path.name for path in (ROOT / "locales" / language).iterdir()) == sorted(FILES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_speak_says_of_an_input_what_each_engine_says(pack_module: Callable[[str], ModuleType], language: str) -> None:
    declare, shown = pack_module("nodes.declare"), locale(language, "nodeDefs.json")
    for spec in pack_module("mizuoto_runtime.engines.registry").all_engines():
        for port in declare.supplied_ports(spec):
            (*_, phase) = (phase for phase in spec.phases if port in phase.takes)
            own = shown[declare.phase_node_id(spec, phase)]["inputs"][port.name]["tooltip"]
            told = shown["MizuotoSpeak"]["inputs"][port.name]["tooltip"]
            assert re.search(rf"{re.escape(spec.label)}[^:：]*[:：] ?{re.escape(own)}", told), f"{port.name}: {told}"


def test_chinese_is_chinese() -> None:
    for path, text in leaves(locale("zh", "nodeDefs.json")):
        assert re.search(r"[\u4e00-\u9fff]", text), f"{'.'.join(path)}: {text}"


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_is_read_as_a_message_format(language: str) -> None:
    """vue-i18n interprets @, |, and braces unless they stand as {'@'}."""
    for name in FILES:
        for path, text in leaves(locale(language, name)):
            bare = re.sub(r"\{'[@{}|]'\}", "", text)
            assert not re.search(r"[@{}|]", bare), f"{'.'.join(path)}: {text}"


def test_interpreted_characters_are_escaped(texts: ModuleType, nodes: tuple) -> None:
    from dataclasses import replace

    odd = replace(nodes[0], label="a@b {c} | d")
    escaped = texts.node_defs([odd])[odd.id]["display_name"]
    assert escaped == "a{'@'}b {'{'}c{'}'} {'|'} d"


def page(node_id: str, language: str) -> str:
    docs = ROOT / "web" / "docs"
    path = docs / f"{node_id}.md" if language == "en" else docs / node_id / f"{language}.md"
    return path.read_text(encoding="utf-8")


def section(text: str, heading: str) -> list[str]:
    found = re.search(rf"(?ms)^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text)
    assert found, f"no section {heading!r}"
    return found.group(1).strip().splitlines()


@pytest.mark.parametrize("language", LANGUAGES)
def test_help_tables_follow_from_the_declarations(texts: ModuleType, nodes: tuple, language: str) -> None:
    words, shown = texts.WORDS[language], locale(language, "nodeDefs.json")
    for node in nodes:
        text, own = page(node.id, language), shown[node.id]
        assert section(text, words.inputs) == texts.input_table(node, own["inputs"], words), node.id
        assert section(text, words.outputs) == texts.output_table(node, own["outputs"], words), node.id


@pytest.mark.parametrize("language", LANGUAGES)
def test_help_titles_and_prose(nodes: tuple, language: str) -> None:
    shown = locale(language, "nodeDefs.json")
    for node in nodes:
        title, _, rest = page(node.id, language).partition("\n")
        assert title == f"# {shown[node.id]['display_name']}"
        assert len(rest.partition("\n## ")[0].strip()) >= 20, f"{node.id}: say what it does"
        assert rest.count("\n## ") == 3, f"{node.id}: inputs, outputs, a tip"


def test_every_help_page_belongs_to_a_node(nodes: tuple) -> None:
    docs = ROOT / "web" / "docs"
    expected = {f"{node.id}{end}" for node in nodes for end in (".md", "/en.md", "/zh.md")}
    advice = "run: python3 locales/update.py"
    assert {path.relative_to(docs).as_posix() for path in docs.rglob("*") if path.is_file()} == expected, advice
    for node in nodes:
        assert (docs / node.id / "en.md").read_bytes() == (docs / f"{node.id}.md").read_bytes(), advice


def test_the_panel_has_the_same_texts_in_every_language() -> None:
    script = (ROOT / "web" / "texts.js").read_text(encoding="utf-8")
    keys = [re.findall(r"(?m)^        (\w+): ", part) for part in re.split(r"(?m)^    (?:en|zh): \{$", script)[1:]]
    assert len(keys) == len(LANGUAGES) and keys[0] == keys[1] and len(keys[0]) > 20


def test_scripts_lie_beside_the_help_pages_only() -> None:
    """ComfyUI loads every .js file below the web folder into the page."""
    assert {path.parent for path in (ROOT / "web").rglob("*.js")} == {ROOT / "web"}
