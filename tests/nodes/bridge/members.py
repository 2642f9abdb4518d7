"""Which members ComfyUI touches on a loaded model, by its source, and whether the adapters have them.

Reading it needs nothing of ComfyUI. Expressions are followed by what they are: an entry (a LoadedModel), a patcher
(what an entry's `.model` is), or a collection of either.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ENTRY, PATCHER, ENTRIES, PATCHERS = "entry", "patcher", "entries", "patchers"
ITEM = {ENTRIES: ENTRY, PATCHERS: PATCHER}
COLLECTION = {item: collection for collection, item in ITEM.items()}
MANAGEMENT = "comfy/model_management.py"
LISTS = {"current_loaded_models": ENTRIES}
PARAMETERS = {"models": PATCHERS, "loaded_models": ENTRIES, "keep_loaded": ENTRIES}
SAME_COLLECTION = {"copy", "list", "reversed", "sorted", "set"}
ONLY_DYNAMIC = {"dynamic_pins", "unregister_inactive_pins"}


class Function:
    """What the names in one function stand for."""

    def __init__(self, node: ast.FunctionDef, owner: str, yields: dict[str, str]) -> None:
        self.node = node
        self.owner = owner
        self.yields = yields
        self.names = {**LISTS, **dict(self._parameters())}
        before = -1
        while len(self.names) != before:
            before = len(self.names)
            for inner in ast.walk(node):
                self._bind(inner)

    def _parameters(self) -> Iterator[tuple[str, str]]:
        for parameter in self.node.args.args:
            annotated = ast.unparse(parameter.annotation) if parameter.annotation else ""
            if annotated == "ModelPatcher" or (parameter.arg == "model" and self.owner == "LoadedModel"):
                yield parameter.arg, PATCHER
            elif parameter.arg in PARAMETERS:
                yield parameter.arg, PARAMETERS[parameter.arg]

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            self._name(node.targets[0], self.kind(node.value))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._name(node.target, self.kind(node.value))
        elif isinstance(node, (ast.For, ast.comprehension)):
            self._name(node.target, ITEM.get(self.kind(node.iter)))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("append", "add") and node.args:
            self._name(node.func.value, COLLECTION.get(self.kind(node.args[0])))  # type: ignore[attr-defined]

    def _name(self, target: ast.AST, kind: str | None) -> None:
        if isinstance(target, ast.Subscript):
            target, kind = target.value, COLLECTION.get(self.kind(target.slice)) or kind
        if isinstance(target, ast.Name) and kind:
            self.names.setdefault(target.id, kind)

    def kind(self, node: ast.AST) -> str:
        """What an expression is; "" for anything else."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "LoadedModel" if node.id == "self" and self.owner == "LoadedModel" else "")
        if isinstance(node, ast.Subscript):
            return ITEM.get(self.kind(node.value), "")
        if isinstance(node, ast.Attribute):
            is_entry = self.kind(node.value) in (ENTRY, "LoadedModel")
            return PATCHER if is_entry and node.attr == "model" else ""
        if isinstance(node, ast.List) and node.elts:
            return COLLECTION.get(self.kind(node.elts[0]), "")
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
            return COLLECTION.get(self.kind(node.elt), "")
        return self._called(node) if isinstance(node, ast.Call) else ""

    def _called(self, node: ast.Call) -> str:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name == "LoadedModel":
            return ENTRY
        if name in self.yields:
            return self.yields[name]
        if isinstance(function, ast.Attribute) and name == "pop":
            return ITEM.get(self.kind(function.value), "")
        if name in SAME_COLLECTION:
            sources = [function.value] if isinstance(function, ast.Attribute) else node.args[:1]
            return next(map(self.kind, sources), "")
        if name == "_model" and isinstance(function, ast.Attribute):
            return PATCHER if self.kind(function.value) == "LoadedModel" else ""
        return ""

    def members(self) -> Iterator[str]:
        for node in ast.walk(self.node):
            if isinstance(node, ast.Attribute) and self.kind(node.value) == PATCHER:
                yield node.attr


def members(source: str) -> set[str]:
    """Every member that the module touches on a patcher."""
    tree = ast.parse(source)
    yields = {"loaded_models": PATCHERS}
    found: set[str] = set()
    functions = list(_functions(tree))
    for node, owner in functions:
        function = Function(node, owner, yields)
        given = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Yield) and inner.value is not None]
        if any(function.kind(value) == PATCHER for value in given):
            yields[node.name] = PATCHERS
    for node, owner in functions:
        found.update(Function(node, owner, yields).members())
    return found


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, ""
        elif isinstance(node, ast.ClassDef):
            yield from ((inner, node.name) for inner in node.body if isinstance(inner, ast.FunctionDef))


def touched(root: Path) -> dict[str, set[str]]:
    """The members by file, in the ComfyUI at `root`: where it manages memory, and where it walks the list."""
    files = [root / MANAGEMENT, root / "execution.py", root / "main.py", *sorted((root / "comfy").glob("*.py"))]
    files += sorted((root / "comfy_extras").glob("*.py"))
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    walking = {
        path: text for path, text in texts.items() if path.name == "model_management.py" or "loaded_models" in text
    }
    return {path.relative_to(root).as_posix(): members(text) for path, text in walking.items()}


def missing(adapter: object, found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Members that the adapter lacks, by the file that touches them."""
    lacking = {
        file: {name for name in names - ONLY_DYNAMIC if not hasattr(adapter, name)} for file, names in found.items()
    }
    return {file: names for file, names in lacking.items() if names}
