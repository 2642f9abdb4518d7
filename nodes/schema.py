"""Node declarations → ComfyUI's V3 schema."""

from __future__ import annotations

from functools import cache
from typing import Any

from comfy_api.latest import io

from .declare import NodeDeclaration, NodeInput, NodeOutput


def node_schema(
    declaration: NodeDeclaration, models: tuple[str, ...] = (), default_model: str | None = None
) -> io.Schema:
    """The schema of a node. `models`: what its model menu offers."""
    is_speak = declaration.role == "speak"
    return io.Schema(
        node_id=declaration.id,
        display_name=declaration.label,
        category=declaration.category,
        description=declaration.description,
        inputs=[_input(item, models, default_model) for item in declaration.inputs],
        outputs=[_output(item) for item in declaration.outputs],
        hidden=[io.Hidden.unique_id, io.Hidden.dynprompt] if is_speak else [],
        enable_expand=is_speak,
    )


def _input(item: NodeInput, models: tuple[str, ...], default_model: str | None) -> Any:
    common = {"display_name": item.label, "tooltip": item.tooltip, "optional": item.optional}
    common |= {"lazy": True} if item.lazy else {}
    lowest, highest = item.widget_range
    number = {"default": item.default, "min": lowest, "max": highest, "step": item.step}
    match item.kind:
        case "socket" if len(item.types) == 1:
            made = _type(item.types[0]).Input(item.id, **common)
        case "socket":
            made = io.MultiType.Input(item.id, [_type(name) for name in item.types], **common)
        case "model":
            made = io.Combo.Input(item.id, options=list(models), default=default_model, **common)
        case "seed":
            made = io.Int.Input(item.id, control_after_generate=True, **number, **common)
        case "int":
            made = io.Int.Input(item.id, **number, **common)
        case "float":
            made = io.Float.Input(item.id, **number, **common)
        case "bool":
            made = io.Boolean.Input(item.id, default=item.default, **common)
        case "choice":
            made = io.Combo.Input(item.id, options=list(item.choices), default=item.default, **common)
        case _:
            is_paragraph = item.kind == "paragraph"
            made = io.String.Input(
                item.id, default=item.default, multiline=is_paragraph, dynamic_prompts=False, **common
            )
    if item.advanced:
        made.extra_dict = {**made.extra_dict, "advanced": True}
    return made


def _output(item: NodeOutput) -> Any:
    return _type(item.type).Output(item.id, display_name=item.label, tooltip=item.tooltip)


@cache
def _type(name: str) -> Any:
    """One class for each name: ComfyUI looks at all classes for each that it sees for the first time."""
    return {"AUDIO": io.Audio, "STRING": io.String}.get(name) or io.Custom(name)
