"""`doctor`: what is in force and why, what is here, and what to mend."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..config import named_config
from ..doctor import Problem, gather, problem
from ..errors import MizuotoError
from ..settings import Settings, resolve
from .arguments import add_device, add_settings, choose_allocator, explicit_settings, settings_of, with_device

if TYPE_CHECKING:
    from .arguments import Commands

BYTES_PER_MB = 1 << 20  # as in the settings


def add_to(commands: Commands) -> None:
    doctor = commands.add_parser("doctor", help="show settings, devices, torch, folders, engines, and what to mend")
    doctor.add_argument("--json", action="store_true")
    add_device(doctor)
    add_settings(doctor)
    doctor.set_defaults(run=_run)


def _run(namespace: argparse.Namespace) -> int:
    settings, problems = _settings(namespace)
    choose_allocator(settings)
    found = gather(settings, problems)
    print(json.dumps(found, ensure_ascii=False, indent=2) if namespace.json else text(found))
    return 0


def _settings(namespace: argparse.Namespace) -> tuple[Settings, list[Problem]]:
    """The settings in force. A file or an environment that can't be read is a problem to report, not to fail for."""
    named_config(namespace.config, {})
    explicit = with_device(resolve(explicit_settings(namespace), {}), namespace)
    try:
        return settings_of(namespace), []
    except MizuotoError as error:
        return explicit, [problem(error, "correct it; until then no other command runs, and defaults are shown here")]


def text(found: Mapping[str, Any]) -> str:
    """The report of `doctor.examine` for people."""
    sections = (_settings_lines, _memory_lines, _torch_lines, _python_lines, _folder_lines, _engine_lines, _problems)
    return "\n\n".join("\n".join(lines(found)) for lines in sections)


def _mb(size_bytes: int | None) -> str:
    return "?" if size_bytes is None else f"{size_bytes / BYTES_PER_MB:,.0f} MB"


def _settings_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"Mizuoto {found['version']}, settings from {found['config_file'] or 'no mizuoto.toml'}"
    width = max(len(name) for name in found["settings"])
    for name, setting in found["settings"].items():
        yield f"  {name:{width}}  {_written(setting['value']):16}  {setting['source']}"


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)


def _memory_lines(found: Mapping[str, Any]) -> Iterator[str]:
    memory = found["memory"]
    if memory is None:
        yield "memory policy: not known, see the problems"
        return
    policy = memory["policy"]
    shared = "; shared with an application, which keeps its own reserve" if memory["shares_device"] else ""
    yield f"memory policy on {memory['device']}{shared}"
    limit = _mb(policy["limit_bytes"]) if policy["limit_bytes"] else "all"
    yield f"  mode {policy['mode']}, reserve {_mb(memory['reserve_bytes'])}, limit {limit}"
    yield f"  host copies {policy['host_copies']}, {_ram(memory)}"
    yield f"  page-locked: {_pins(memory)}, side streams {policy['side_streams']}"
    retry, fallback = (_written(policy[name]) for name in ("oom_retry", "oom_fallback"))
    yield f"  out of memory: retry {retry}, fallback {fallback}"
    yield f"  KV cache {policy['kv_cache']}, CUDA graphs {_written(policy['cuda_graphs'])}, jobs {policy['gpu_jobs']}"
    yield "devices"
    for device in memory["devices"]:
        yield f"  {device['name']:8} {_device(device)}"


def _ram(memory: Mapping[str, Any]) -> str:
    ram = memory["ram"]
    return f"RAM {_mb(ram['total_bytes'])}, {_mb(ram['free_bytes'])} free, {_mb(ram['reserve_bytes'])} kept free"


def _pins(memory: Mapping[str, Any]) -> str:
    pins = memory["pins"]
    if pins["mode"] == "off":
        return f"nothing ({pins['reason']})"
    return f"{pins['mode']}, at most {_mb(pins['budget_bytes'])}, {_mb(pins['held_bytes'])} now"


def _device(device: Mapping[str, Any]) -> str:
    if device["error"]:
        return f"{device['kind']}, can't be asked: {device['error']}"
    if device["total_bytes"] is None:
        return f"{device['kind']}, in RAM: nothing is moved or counted"
    product = f"{device['product']}, " if device["product"] else ""
    figures = (_mb(device[f"{name}_bytes"]) for name in ("total", "free", "held"))
    return f"{device['kind']}, {product}" + "{}, {} free, {} held by this process".format(*figures)


def _torch_lines(found: Mapping[str, Any]) -> Iterator[str]:
    torch = found["torch"]
    if torch is None:
        yield "torch: none"
        return
    builds = [f"{name} {torch[name]}" for name in ("cuda", "hip", "xpu") if torch[name]]
    yield f"torch {torch['version']} ({', '.join(builds) or ('MPS' if torch['mps'] else 'CPU only')})"
    yield f"  threads {torch['threads']}, between operations {torch['interop_threads']}"
    variables = [f"{name}={value}" for name, value in torch["allocator_variables"].items()]
    yield f"  allocator {torch['allocator_backend'] or 'none in use'}, {', '.join(variables) or 'no variable set'}"


def _python_lines(found: Mapping[str, Any]) -> Iterator[str]:
    python = found["python"]
    yield f"Python {python['version']} at {python['executable']}, {python['platform']}"
    usable = f", {python['usable_cpus']} usable" if python["usable_cpus"] is not None else ""
    variables = "".join(f", {name}={value}" for name, value in python["thread_variables"].items())
    yield f"  {python['cpus']} CPUs{usable}{variables}"


def _folder_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield "model folders"
    for folder in found["model_folders"]:
        state = "writable" if folder["writable"] else "read-only"
        yield f"  {folder['path']}  {state if folder['exists'] else 'not there'}, {folder['models']} models"


def _engine_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield "engines"
    for engine in found["engines"]:
        missing = ", ".join(item["package"] for item in engine["missing"])
        yield f"  {engine['label']}: {f'lacks {missing}' if missing else 'ready'}"
        more = [f"; {len(engine['fetchable'])} more can be fetched"] if engine["fetchable"] else []
        more += [f"; to be downloaded by hand: {_some(engine['by_hand'])}"] if engine["by_hand"] else []
        yield f"    installed: {_some(engine['installed'])}{''.join(more)}"


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def _problems(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"problems: {len(found['problems']) or 'none'}"
    for item in found["problems"]:
        yield f"  {item['what']}"
        yield f"    → {item['next']}"
