"""Writes what follows from the node declarations: locales/en, and the tables of the help pages in every language.

Run it after a declaration has changed, then translate what is new in the other languages:

    python3 locales/update.py
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACK = "mizuoto_pack"


def pack_module(name: str) -> ModuleType:
    """A module of the pack, loaded from its folder as ComfyUI does."""
    if PACK not in sys.modules:
        spec = importlib.util.spec_from_file_location(PACK, ROOT / "__init__.py")
        assert spec is not None and spec.loader is not None
        sys.modules[PACK] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[PACK])
    return importlib.import_module(f"{PACK}.{name}")


def page_path(node_id: str, language: str) -> Path:
    """Where a node's help page is written. The English one is also what the editor shows in any other language."""
    docs = ROOT / "web" / "docs"
    return docs / f"{node_id}.md" if language == "en" else docs / node_id / f"{language}.md"


def copy_page(node_id: str) -> None:
    """The English page where an English editor looks first; its browser would complain of a page that isn't there."""
    page = page_path(node_id, "en")
    (page.with_suffix("") / "en.md").write_bytes(page.read_bytes())


def with_table(page: str, heading: str, table: list[str]) -> str:
    """The page with `table` as the whole content below `## heading`."""
    section = re.compile(rf"(?ms)^## {re.escape(heading)}\n.*?(?=^## |\Z)")
    if not section.search(page):
        raise SystemExit(f"a help page has no section '## {heading}':\n{page}")
    body = "\n".join(table)
    return section.sub(lambda _: f"## {heading}\n\n{body}\n\n", page).rstrip() + "\n"


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    declare, texts = pack_module("nodes.declare"), pack_module("nodes.texts")
    nodes = declare.node_declarations(pack_module("mizuoto_runtime.engines.registry").all_engines())
    write_json(ROOT / "locales" / "en" / "nodeDefs.json", texts.node_defs(nodes))
    write_json(ROOT / "locales" / "en" / "main.json", texts.main_texts(nodes))
    settings = pack_module("mizuoto_runtime.settings").SETTINGS
    write_json(ROOT / "locales" / "en" / "settings.json", texts.setting_texts(settings))
    for language, words in texts.WORDS.items():
        shown = json.loads((ROOT / "locales" / language / "nodeDefs.json").read_text(encoding="utf-8"))
        for node in nodes:
            path = page_path(node.id, language)
            page = path.read_text(encoding="utf-8")
            page = with_table(page, words.inputs, texts.input_table(node, shown[node.id]["inputs"], words))
            page = with_table(page, words.outputs, texts.output_table(node, shown[node.id]["outputs"], words))
            path.write_text(page, encoding="utf-8")
    for node in nodes:
        copy_page(node.id)


if __name__ == "__main__":
    main()
