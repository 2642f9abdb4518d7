"""Mizuoto: text to speech for ComfyUI. Importing this does nothing until ComfyUI asks for the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from comfy_api.latest import ComfyExtension

WEB_DIRECTORY = "./web"


async def comfy_entrypoint() -> ComfyExtension:
    """The pack's nodes, made when ComfyUI asks for them."""
    from .nodes.extension import MizuotoExtension

    return MizuotoExtension()
