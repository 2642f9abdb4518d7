"""Node declarations → the texts that the editor shows: locale files and the tables of the help pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..mizuoto_runtime.settings import Setting
from .declare import CATEGORY, NodeDeclaration, NodeInput

SETTING_GROUPS = ("Mizuoto", "Memory", "Engines", "Models")
ESCAPED = str.maketrans({char: f"{{'{char}'}}" for char in "@{}|"})


@dataclass(frozen=True, kw_only=True)
class Words:
    """What the tables of one language are made of."""

    inputs: str
    outputs: str
    input_head: tuple[str, ...]
    output_head: tuple[str, ...]
    kinds: Mapping[str, str]
    optional: str
    auto: str
    either: str


ENGLISH = Words(
    inputs="Inputs",
    outputs="Outputs",
    input_head=("Input", "What it does", "Type", "Default", "Range"),
    output_head=("Output", "What it is", "Type"),
    kinds={
        "model": "menu",
        "seed": "whole number",
        "int": "whole number",
        "float": "number",
        "bool": "switch",
        "choice": "menu",
        "text": "text",
        "paragraph": "text",
    },
    optional="{} (optional)",
    auto="or {}",
    either=" or ",
)
CHINESE = Words(
    inputs="输入",
    outputs="输出",
    input_head=("输入", "作用", "类型", "默认值", "范围"),
    output_head=("输出", "内容", "类型"),
    kinds={
        "model": "菜单",
        "seed": "整数",
        "int": "整数",
        "float": "数值",
        "bool": "开关",
        "choice": "菜单",
        "text": "文本",
        "paragraph": "文本",
    },
    optional="{}（可选）",
    auto="或 {}",
    either=" 或 ",
)
WORDS = {"en": ENGLISH, "zh": CHINESE}


def node_defs(declarations: Iterable[NodeDeclaration]) -> dict[str, object]:
    """The content of locales/en/nodeDefs.json. Characters that vue-i18n would interpret are escaped."""
    return {node.id: _node_def(node) for node in declarations}


def main_texts(declarations: Sequence[NodeDeclaration]) -> dict[str, object]:
    """The content of locales/en/main.json: names of the pack's menu folders and socket types."""
    folders = {part: part for node in declarations for part in node.category.split("/")[1:]}
    types = {item.type: _type_label(item.type) for node in declarations for item in node.outputs}
    own = {name: label for name, label in types.items() if name.startswith("MIZUOTO_")}
    return {
        "nodeCategories": {**folders, CATEGORY.split("/")[1]: "Mizuoto"},
        "dataTypes": own,
        "settingsCategories": {name: name for name in SETTING_GROUPS},
    }


def setting_texts(settings: Iterable[Setting]) -> dict[str, object]:
    """The content of locales/en/settings.json: what ComfyUI's dialog shows of the settings that stand there."""
    return {
        f"Mizuoto_{setting.name.replace('.', '_')}": {
            "name": setting.label.translate(ESCAPED),
            "tooltip": setting.help.translate(ESCAPED),
        }
        for setting in settings
        if not setting.name.startswith("paths.")
    }


def input_table(node: NodeDeclaration, texts: Mapping[str, dict[str, str]], words: Words) -> list[str]:
    """The rows of the help page's table of inputs. `texts`: name and tooltip of each, from the locale.

    What it does comes second: a help panel shows two columns, and the others when it is widened.
    """
    rows = [
        (
            texts[item.id]["name"],
            _plain(texts[item.id]["tooltip"]),
            _kind(item, words),
            _default(item),
            _range(item, words),
        )
        for item in node.inputs
    ]
    return _table(words.input_head, rows)


def output_table(node: NodeDeclaration, texts: Mapping[str, dict[str, str]], words: Words) -> list[str]:
    """The rows of the help page's table of outputs. `texts`: by the output's number."""
    rows = [
        (texts[str(index)]["name"], _plain(texts[str(index)]["tooltip"]), f"`{item.type}`")
        for index, item in enumerate(node.outputs)
    ]
    return _table(words.output_head, rows)


def _node_def(node: NodeDeclaration) -> dict[str, object]:
    return {
        "display_name": _escaped(node.label),
        "description": _escaped(node.description),
        "inputs": {item.id: _named(item.label, item.tooltip) for item in node.inputs},
        "outputs": {str(index): _named(item.label, item.tooltip) for index, item in enumerate(node.outputs)},
    }


def _named(label: str, tooltip: str) -> dict[str, str]:
    return {"name": _escaped(label), "tooltip": _escaped(tooltip)}


def _escaped(text: str) -> str:
    return text.translate(ESCAPED)


def _plain(text: str) -> str:
    """A locale's text as it is shown, safe inside a table."""
    for char in "@{}|":
        text = text.replace(f"{{'{char}'}}", char)
    return text.replace("|", "\\|").replace("[[", "\\[\\[").replace("]]", "\\]\\]")


def _type_label(type_: str) -> str:
    """MIZUOTO_PIPER_MODEL → Piper model."""
    words = type_.removeprefix("MIZUOTO_").lower().split("_")
    return " ".join([words[0].capitalize(), *words[1:]])


def _kind(item: NodeInput, words: Words) -> str:
    if item.kind == "socket":
        kind = words.either.join(f"`{name}`" for name in item.types)
    else:
        kind = words.kinds[item.kind]
    is_unset = item.optional and item.default in (None, "")
    return words.optional.format(kind) if is_unset else kind


def _default(item: NodeInput) -> str:
    if item.default in (None, ""):
        return ""
    return _number(item.default) if isinstance(item.default, (int, float)) else str(item.default)


def _range(item: NodeInput, words: Words) -> str:
    if item.choices:
        return ", ".join(item.choices)
    if item.low is None or item.high is None:
        return ""
    limits = f"{_number(item.low)} … {_number(item.high)}"
    return f"{limits} {words.auto.format(_number(item.auto))}" if isinstance(item.auto, (int, float)) else limits


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]
