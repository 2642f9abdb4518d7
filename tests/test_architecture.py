"""The layers: who may import whom, and what an import must not bring."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RUNTIME = sorted((ROOT / "mizuoto_runtime").rglob("*.py"))
PACK = [ROOT / "__init__.py", *sorted((ROOT / "nodes").rglob("*.py"))]
COMFY = {"comfy", "comfy_api", "comfy_execution", "folder_paths", "server", "execution"}
EDGE = ROOT / "nodes" / "bridge.py"
ENGINES = ROOT / "mizuoto_runtime" / "engines"


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


def absolute_imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, relative ones resolved, `from x import y` as x.y."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            parts = [*above, *(node.module or "").split(".")]
            yield from (".".join(filter(None, (*parts, name.name))) for name in node.names)


@pytest.mark.parametrize("path", RUNTIME, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_runtime_knows_nothing_of_comfyui_nor_of_its_own_name(path: Path) -> None:
    for level, name in imports(path):
        top = name.split(".")[0]
        assert level or top not in COMFY | {"nodes", "mizuoto_runtime", "mizuoto"}, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", PACK, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_only_the_bridge_imports_comfyui(path: Path) -> None:
    if path == EDGE:
        return
    for level, name in imports(path):
        assert level or name.split(".")[0] not in COMFY - {"comfy_api", "comfy_execution"}, f"{path.name}: {name}"


@pytest.mark.parametrize("folder", [path for path in ENGINES.iterdir() if path.is_dir()], ids=lambda path: path.name)
def test_no_engine_imports_an_engine(folder: Path) -> None:
    others = {f"mizuoto_runtime.engines.{path.name}" for path in ENGINES.iterdir() if path.is_dir()}
    others.discard(f"mizuoto_runtime.engines.{folder.name}")
    for path in folder.rglob("*.py"):
        for name in absolute_imports(path):
            assert not any(f"{name}.".startswith(f"{other}.") for other in others), f"{path} imports {name}"


ALSO = {"memory": ("mizuoto_runtime.settings",), "lm": ("mizuoto_runtime.nn",)}


@pytest.mark.parametrize("folder", ["audio", "lm", "memory", "nn", "text", "weights"])
def test_the_lower_layers_know_no_engine_and_no_session(folder: str) -> None:
    for path in (ROOT / "mizuoto_runtime" / folder).rglob("*.py"):
        for name in absolute_imports(path):
            inside = name.startswith("mizuoto_runtime.")
            allowed = (f"mizuoto_runtime.{folder}", "mizuoto_runtime.types", "mizuoto_runtime.errors")
            allowed += ALSO.get(folder, ())
            assert not inside or name.startswith(allowed), f"{path} imports {name}"


@pytest.mark.parametrize("command", [["engines", "--json"], ["--help"], ["models", "list"]])
def test_listing_brings_no_torch(command: list[str]) -> None:
    code = (
        "import sys; from mizuoto_runtime.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'transformers', 'safetensors', 'espeakng_loader'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "tests" / "golden").iterdir() if path.is_dir()))
def test_an_engines_golden_data_is_small(folder: str) -> None:
    files = [path for path in (ROOT / "tests" / "golden" / folder).rglob("*") if path.is_file()]
    size_bytes = sum(path.stat().st_size for path in files if "__pycache__" not in path.parts)
    assert size_bytes < 2_000_000, f"{size_bytes:,} bytes"
