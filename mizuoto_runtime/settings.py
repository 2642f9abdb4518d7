"""Settings: each has a name, a default and a range. Default < mizuoto.toml < environment < explicit value."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from .addresses import HUGGING_FACE, checked_endpoint
from .config import named_config, read_config, usual_config
from .engines.registry import ENGINES, engine_spec
from .errors import InputError, UnknownName

ENVIRONMENT_PREFIX = "MIZUOTO_"
MAX_MB = 1 << 20
WORDS = {"on": True, "true": True, "off": False, "false": False}
KINDS = {int: "a whole number", float: "a number", bool: "on or off", str: "a text", tuple: "a list of names"}

Value = int | float | bool | str | tuple[str, ...] | None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting. The type of `default` is the setting's type; `low` and `high` bound a number.

    A default of None: a whole number that may be left empty, which means automatic. live: a change has its effect while
    a server runs. label: the name in a dialog. address: it is that of a server. foreign: a variable that sets it for
    other programs too; what stands there is checked when it is used, so that nothing else fails for it.
    """

    name: str
    default: Value
    label: str
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    live: bool = True
    address: bool = False
    foreign: str = ""

    @property
    def variable(self) -> str:
        """The environment variable: compute.device → MIZUOTO_COMPUTE__DEVICE."""
        return ENVIRONMENT_PREFIX + self.name.replace(".", "__").upper()

    @property
    def type(self) -> type:
        return int if self.default is None else type(self.default)

    def check(self, value: object, source: str) -> Value:
        """`value` in the setting's type; InputError names the source of a bad one."""
        if self.default is None and value in (None, ""):
            return None
        if self.type is float and type(value) is int:
            value = float(value)
        if self.type is tuple and isinstance(value, list) and all(isinstance(name, str) and name for name in value):
            value = tuple(value)
        if type(value) is not self.type:
            empty = ", or empty" if self.default is None else ""
            raise InputError(f"setting {self.name} ({source}) is {value!r}; it must be {KINDS[self.type]}{empty}")
        assert isinstance(value, (int, float, str, tuple))
        self._check_range(value, source)
        if self.address:
            return checked_endpoint(str(value), f"setting {self.name} ({source})") if value else self.default
        if self.choices and value not in self.choices:
            raise UnknownName(f"value of setting {self.name} ({source})", value, self.choices)
        return value

    def _check_range(self, value: Value, source: str) -> None:
        if not isinstance(value, (int, float)) or self.low is None or self.high is None:
            return
        if not self.low <= value <= self.high:
            limits = f"it must be from {self.low:g} to {self.high:g}"
            raise InputError(f"setting {self.name} ({source}) is {value!r}; {limits}")

    def parse(self, text: str, source: str) -> Value:
        """The value written in `text`: a text as it is, names with commas between them, on or off, else JSON."""
        if self.type is str:
            return self.check(text, source)
        if self.type is tuple:
            return self.check([name.strip() for name in text.split(",") if name.strip()], source)
        if self.type is bool:
            return self.check(WORDS.get(text.strip().lower(), text), source)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text.strip()
        return self.check(value, source)


SETTINGS = (
    Setting(
        name="compute.device",
        label="Device",
        live=False,
        default="",
        help="torch device to run on; empty: the host's choice, else cpu",
    ),
    Setting(
        name="compute.vram_mode",
        label="VRAM mode",
        default="auto",
        choices=("auto", "high", "normal", "low", "none", "shared"),
        help="how much of a model stays on the device: high all, none nothing that can stream",
    ),
    Setting(
        name="compute.vram_reserve_mb",
        label="VRAM left to others (MB)",
        default=None,
        low=0,
        high=MAX_MB,
        help="device memory left to others; empty: 1024, or an eighth of a device that is smaller than 8 GB",
    ),
    Setting(
        name="compute.vram_limit_mb",
        label="VRAM limit (MB)",
        default=0,
        low=0,
        high=MAX_MB,
        help="most to hold on a device; 0: all",
    ),
    Setting(
        name="compute.ram_reserve_mb",
        label="RAM left free (MB)",
        default=None,
        low=0,
        high=MAX_MB,
        help="RAM that kept host copies and idle models leave free; empty: 2 GB or a tenth, whichever is more",
    ),
    Setting(
        name="compute.host_copies",
        label="Keep copies in RAM",
        default="auto",
        choices=("auto", "on", "off"),
        help="keep placed weights in RAM too; auto: while RAM above its reserve is free",
    ),
    Setting(
        name="compute.max_pinned_mb",
        label="Page-locked RAM limit (MB)",
        default=0,
        low=0,
        high=MAX_MB,
        help="most RAM to page-lock for copies to a CUDA or ROCm device; 0: by the size of RAM",
    ),
    Setting(
        name="compute.async_offload",
        label="Side streams",
        default=-1,
        low=-1,
        high=8,
        help="side streams; -1: 2 on NVIDIA and AMD",
    ),
    Setting(
        name="compute.oom_retry",
        label="Retry when memory runs out",
        default=True,
        help="run a phase again, with the same result, if memory ran out",
    ),
    Setting(
        name="compute.oom_fallback",
        label="Thriftier fallback when memory runs out",
        default=False,
        help="then allow thriftier ways with slightly other results",
    ),
    Setting(
        name="compute.kv_cache",
        label="KV cache",
        default="dynamic",
        choices=("dynamic", "static"),
        help="how language models keep attention's keys and values; static may change results on a GPU",
    ),
    Setting(
        name="compute.dtype",
        label="Computation dtype",
        default="auto",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="what language models and transformers compute in; auto: as their files are stored; other ones change "
        "results; no choice: Piper",
    ),
    Setting(
        name="compute.cuda_graphs",
        label="CUDA graphs",
        default=True,
        help="let engines replay CUDA graphs; NVIDIA and AMD only",
    ),
    Setting(
        name="compute.cuda_allocator",
        label="CUDA allocator",
        live=False,
        default="auto",
        choices=("auto", "native", "async", "expandable"),
        help="torch's allocator, for this command line's own process; inside ComfyUI that is ComfyUI's to choose",
    ),
    Setting(
        name="compute.max_resident_models",
        label="Models kept loaded",
        default=3,
        low=1,
        high=64,
        help="models kept loaded at once",
    ),
    Setting(
        name="compute.unload_after_minutes",
        label="Unload after (minutes)",
        default=20,
        low=0,
        high=1 << 20,
        help="a server, ComfyUI too, lets go of a model that is idle for longer, once nothing runs; 0: never",
    ),
    Setting(
        name="compute.gpu_jobs",
        label="Requests at once",
        default=1,
        low=1,
        high=16,
        help="requests that a server runs at once on a GPU; ComfyUI runs one node at a time",
    ),
    Setting(
        name="compute.simulate_vram_mb",
        label="Simulated VRAM (MB)",
        live=False,
        default=0,
        low=0,
        high=MAX_MB,
        help="play a device on the CPU; 0: off",
    ),
    *(
        Setting(
            name=f"engines.{engine}.pinned_models",
            label=f"Pinned {engine_spec(engine).label} models",
            default=(),
            help="models, by name and with commas between, that give way last",
        )
        for engine in ENGINES
    ),
    Setting(
        name="fetch.endpoint",
        label="Fetch models from",
        default=HUGGING_FACE,
        help="the hub that models are fetched from, or a mirror's address; empty: Hugging Face",
        address=True,
        foreign="HF_ENDPOINT",
    ),
    Setting(
        name="paths.cache",
        label="Cache folder",
        live=False,
        default="",
        help="folder for what is learnt; empty: ~/.mizuoto/cache",
    ),
    Setting(
        name="paths.models",
        label="Model folders",
        live=False,
        default="",
        help="folders of models, separated as in PATH; empty: ~/.mizuoto/models",
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def setting(name: str) -> Setting:
    """The setting of that name; UnknownName lists the known ones."""
    if name not in BY_NAME:
        raise UnknownName("setting", name, BY_NAME)
    return BY_NAME[name]


@dataclass(frozen=True)
class Settings:
    """Values in force. `sources` says of each "default", the file's name, "saved", the variable's, or "--setting".

    config: the file that was read.
    """

    values: Mapping[str, Value]
    sources: Mapping[str, str]
    config: Path | None = None

    def integer(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        return str(self.values[name])

    def flag(self, name: str) -> bool:
        return bool(self.values[name])

    def names(self, name: str) -> tuple[str, ...]:
        value = self.values[name]
        assert isinstance(value, tuple)
        return value

    def changed(self, texts: Mapping[str, str], source: str) -> Settings:
        """These settings with the values written in `texts` before all others."""
        values = {name: setting(name).parse(text, source) for name, text in texts.items()}
        sources = dict.fromkeys(values, source)
        return replace(self, values={**self.values, **values}, sources={**self.sources, **sources})


def _refuse_unknown(variables: Mapping[str, str]) -> None:
    known = {setting.variable for setting in SETTINGS}
    for name in variables:
        if name.startswith(ENVIRONMENT_PREFIX) and "__" in name and name not in known:
            raise UnknownName("setting in the environment", name, known)


def resolve(
    explicit: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    config: Path | None = None,
    saved: Mapping[str, Value] | None = None,
) -> Settings:
    """Settings from the defaults, the file, what was `saved`, the environment, then `explicit` texts: the last wins.

    config: the file, else the one that MIZUOTO_CONFIG names. environment: None for the process's own, and then also
    for the usual file: in the working directory, else the user's. InputError says what can't be, and where it stands.
    """
    variables = os.environ if environment is None else environment
    file = named_config(config, variables)
    if file is None and environment is None:
        file = usual_config(variables)
    values: dict[str, Value] = {setting.name: setting.default for setting in SETTINGS}
    sources = dict.fromkeys(values, "default")
    for name, value in (read_config(file, BY_NAME) if file else {}).items():
        values[name] = setting(name).check(value, str(file))
        sources[name] = file.name if file else ""
    for name, kept in (saved or {}).items():
        values[name], sources[name] = setting(name).check(kept, "saved"), "saved"
    _refuse_unknown(variables)
    for item in SETTINGS:
        if item.variable in variables:
            values[item.name] = item.parse(variables[item.variable], item.variable)
            sources[item.name] = item.variable
        elif item.foreign and variables.get(item.foreign):
            values[item.name], sources[item.name] = variables[item.foreign], item.foreign
    return Settings(values, sources, file).changed(explicit or {}, "--setting")
