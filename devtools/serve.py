"""`dev.py comfyui`: ComfyUI with the pack, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path

from . import install
from .comfyui import HOST, ComfyServer, free_port, port_is_free, prepare_base
from .errors import DevError
from .paths import BASE
from .voice import place_voice

USUAL_PORT = 8188


def _chosen_port(asked: int | None) -> int:
    if asked is None:
        return USUAL_PORT if port_is_free(USUAL_PORT) else free_port()
    if not 1 <= asked <= 65535:
        raise DevError(f"--port {asked} is not a port; give a number from 1 to 65535")
    if not port_is_free(asked):
        raise DevError(f"port {asked} on {HOST} is taken or not allowed. Give another --port, or none for a free one")
    return asked


def serve(*, comfyui: Path | None, port: int | None) -> int:
    """Run the server until it is interrupted, which is its normal end; raises `DevError` if it ends by itself."""
    chosen = _chosen_port(port)
    tree = install.ensure(comfyui)
    base = prepare_base(BASE)
    place_voice(base)
    print(f"starting ComfyUI {tree.version} …", flush=True)
    try:
        with ComfyServer(tree, base, port=chosen) as server:
            print(f"open {server.url} (log: {server.log_path}); Ctrl-C stops it", flush=True)
            server.wait()
            server.check()
    except KeyboardInterrupt:
        print("\nstopped", flush=True)
    return 0
