"""The runtime's settings: one table of names, types and limits, and the values in force with where each came from."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import InputError, UnknownName

ENVIRONMENT_PREFIX = "MIZUOTO_"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting. The type of `default` is the setting's type; `low` and `high` bound a number."""

    name: str
    default: int | float | bool | str
    help: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The environment variable: compute.device → MIZUOTO_COMPUTE__DEVICE."""
        return ENVIRONMENT_PREFIX + self.name.replace(".", "__").upper()

    def check(self, value: object, source: str) -> int | float | bool | str:
        """`value` in the setting's type; InputError names the source of a bad one."""
        wanted = type(self.default)
        if wanted is float and type(value) is int:
            value = float(value)
        if not isinstance(value, wanted) or isinstance(value, bool) is not (wanted is bool):
            raise InputError(f"setting {self.name} ({source}) is {value!r}; it must be of type {wanted.__name__}")
        self._check_range(value, source)
        if self.choices and value not in self.choices:
            raise UnknownName(f"value of setting {self.name} ({source})", value, self.choices)
        return value

    def _check_range(self, value: int | float | bool | str, source: str) -> None:
        if isinstance(value, str) or self.low is None or self.high is None:
            return
        if not self.low <= value <= self.high:
            limits = f"it must be from {self.low:g} to {self.high:g}"
            raise InputError(f"setting {self.name} ({source}) is {value!r}; {limits}")

    def parse(self, text: str, source: str) -> int | float | bool | str:
        """The value written in `text`: as it is for a text setting, else JSON."""
        if isinstance(self.default, str):
            return self.check(text, source)
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        return self.check(value, source)


SETTINGS = (
    Setting(name="compute.device", default="", help="torch device to run on; empty: the host's choice, else cpu"),
    Setting(
        name="compute.vram_mode",
        default="auto",
        choices=("auto", "high", "normal", "low", "none", "shared"),
        help="how much of a model stays on the device: high all, none nothing that can stream",
    ),
    Setting(name="compute.vram_reserve_mb", default=1024, low=0, high=1 << 20, help="device memory left to others"),
    Setting(name="compute.vram_limit_mb", default=0, low=0, high=1 << 20, help="most to hold on a device; 0: all"),
    Setting(name="compute.host_copies", default="on", choices=("on", "off"), help="keep placed weights in RAM too"),
    Setting(name="compute.async_offload", default=-1, low=-1, high=8, help="side streams; -1: 2 on NVIDIA and AMD"),
    Setting(name="compute.oom_retry", default=True, help="run a phase again, with the same result, if memory ran out"),
    Setting(name="compute.oom_fallback", default=False, help="then allow thriftier ways with slightly other results"),
    Setting(name="compute.simulate_vram_mb", default=0, low=0, high=1 << 20, help="play a device on the CPU; 0: off"),
    Setting(name="compute.max_resident_models", default=3, low=1, high=64, help="models kept loaded at once"),
    Setting(name="paths.models", default="", help="folders of models, separated as in PATH; empty: ~/.mizuoto/models"),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def setting(name: str) -> Setting:
    """The setting of that name; UnknownName lists the known ones."""
    if name not in BY_NAME:
        raise UnknownName("setting", name, BY_NAME)
    return BY_NAME[name]


@dataclass(frozen=True)
class Settings:
    """Values in force. `sources` says for each name whether it is the default, the environment's or the caller's."""

    values: Mapping[str, int | float | bool | str]
    sources: Mapping[str, str]

    def integer(self, name: str) -> int:
        return int(self.values[name])

    def text(self, name: str) -> str:
        return str(self.values[name])


def _refuse_unknown(variables: Mapping[str, str]) -> None:
    known = {setting.variable for setting in SETTINGS}
    for name in variables:
        if name.startswith(ENVIRONMENT_PREFIX) and "__" in name and name not in known:
            raise UnknownName("setting in the environment", name, known)


def resolve(explicit: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """Settings from the defaults, then the environment (`os.environ` if None), then `explicit` texts: the last wins."""
    variables = os.environ if environment is None else environment
    values = {setting.name: setting.default for setting in SETTINGS}
    sources = dict.fromkeys(values, "default")
    _refuse_unknown(variables)
    for item in SETTINGS:
        if item.variable in variables:
            values[item.name] = item.parse(variables[item.variable], item.variable)
            sources[item.name] = item.variable
    for name, text in (explicit or {}).items():
        values[name] = setting(name).parse(text, "--setting")
        sources[name] = "--setting"
    return Settings(values, sources)
