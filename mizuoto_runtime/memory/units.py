"""Which weights of a module move together, and which stay on the device whenever the module is there.

A unit is a child of a list of layers, or what the module itself names. Weights of a unit stream if they are read only
in their own layer's forward; everything else is fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.weight_norm import WeightNorm

from .absent import in_ram
from .group import Entry, Place, WeightGroup, extent_bytes, is_placed, is_plain, shape_of
from .intercept import original_class

MIN_UNIT_BYTES = 1 << 20
MIN_STREAMED_BYTES = 64 << 10
OUTSIZED = 4
LAYERS = (
    nn.Linear,
    nn.Bilinear,
    nn.modules.conv._ConvNd,
    nn.MultiheadAttention,
    nn.RNNBase,
    nn.RNNCellBase,
)
Mark = str


@dataclass(eq=False)
class Unit:
    """Weights that stream together.

    modules: those whose calls need the weights. order: the unit's place among all units when the model runs. gathers:
    an embedding; off the device its rows are gathered in RAM, so that it is never copied whole.
    """

    name: str
    group: WeightGroup
    modules: list[nn.Module]
    order: int
    mark: Mark = "normal"
    gathers: bool = False


@dataclass
class Division:
    """A module's weights, divided. opaque: tensors of other kinds than torch's own, which move one by one."""

    module: nn.Module
    fixed: WeightGroup
    buffers: WeightGroup
    units: list[Unit]
    opaque: list[Entry]
    stays: Callable[[nn.Module], bool]

    @property
    def groups(self) -> list[WeightGroup]:
        return [self.fixed, self.buffers, *(unit.group for unit in self.units)]

    def is_current(self) -> bool:
        """Whether the module still has the tensors that were divided, and no others."""
        entries = [entry for group in self.groups for entry in group.entries] + self.opaque
        known = {(id(place.container), place.key) for entry in entries for place in entry.places}
        parts = [part for part in self.module.modules() if not self.stays(part)]
        return all(group.is_current() for group in self.groups) and all(
            (id(container), key) in known
            for part in parts
            for container in (part._parameters, part._buffers)
            for key, tensor in container.items()
            if tensor is not None
        )


class _FlatWeights:
    """The list in which a recurrent layer keeps its weights besides; the layer makes a new one now and then."""

    def __init__(self, layer: nn.RNNBase) -> None:
        self._layer = layer

    def __getitem__(self, index: int) -> Tensor | None:
        return self._layer._flat_weights[index]

    def __setitem__(self, index: int, tensor: Tensor) -> None:
        self._layer._flat_weights[index] = tensor


@dataclass
class _Found:
    """A distinct tensor, the modules that own it, and whether it is of torch's own kind. key: what hangs, by id."""

    key: int
    entry: Entry
    owners: list[nn.Module]
    plain: bool


def divide(
    module: nn.Module, marks: Mapping[nn.Module, Mark], stays: Callable[[nn.Module], bool] = lambda module: False
) -> Division:
    """Divide the weights of `module`. stays: whether a module never leaves the CPU, with everything under it."""
    found = _tensors(module, stays)
    effective = _effective_marks(module, marks)
    first = next((in_ram(parameter) for parameter in module.parameters()), None)
    units: list[Unit] = []
    embeddings = [_embedding(part, name, found, effective) for name, part in module.named_modules() if not stays(part)]
    gathered = [unit for unit in embeddings if unit is not None]
    streamed: set[int] = set() if first is None else {id(first)}
    for name, root in unit_roots(module):
        layers = [part for part in root.modules() if _streams(part, effective) and not stays(part)]
        members = _members(layers, found, streamed)
        size_bytes = sum(extent_bytes(item.entry.host) for item in members)
        if size_bytes < MIN_STREAMED_BYTES:
            continue
        streamed.update(item.key for item in members)
        group = WeightGroup(name, [item.entry for item in members])
        units.append(Unit(name, group, _gated(root, layers), len(units), effective[root]))
    moving = {id(entry) for unit in (*units, *gathered) for entry in unit.group.entries}
    rest = [item for item in found.values() if id(item.entry) not in moving]
    return Division(
        module=module,
        fixed=WeightGroup("fixed", [item.entry for item in rest if item.plain and item.entry.is_parameter]),
        buffers=WeightGroup("buffers", [item.entry for item in rest if item.plain and not item.entry.is_parameter]),
        units=_numbered([*_split(units), *gathered]),
        opaque=[item.entry for item in rest if not item.plain],
        stays=stays,
    )


def unit_roots(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules that are units, outermost first: what `memory_units()` names, else the larger children of lists."""
    named = getattr(module, "memory_units", None)
    if callable(named):
        names = {part: path for path, part in module.named_modules()}
        yield from ((_join(name, names[unit]), unit) for unit in named())
        return
    is_list = isinstance(module, (nn.ModuleList, nn.Sequential))
    for key, child in module.named_children():
        path = _join(name, key)
        if is_list and _size_bytes(child) >= MIN_UNIT_BYTES:
            yield path, child
        else:
            yield from unit_roots(child, path)


def _join(name: str, key: str) -> str:
    return f"{name}.{key}" if name else key


def _size_bytes(module: nn.Module) -> int:
    weights = (in_ram(parameter) for parameter in module.parameters())
    return sum(extent_bytes(weight) for weight in weights if is_plain(weight))


def _tensors(module: nn.Module, stays: Callable[[nn.Module], bool]) -> dict[int, _Found]:
    found: dict[int, _Found] = {}
    for path, part in module.named_modules(remove_duplicate=True):
        if stays(part):
            continue
        for container, is_parameter in ((part._parameters, True), (part._buffers, False)):
            for key, tensor in container.items():
                if tensor is not None:
                    _note(found, _join(path, key), in_ram(tensor), Place(container, key), part, is_parameter)
        if isinstance(part, nn.RNNBase):
            for index, tensor in enumerate(part._flat_weights):
                if tensor is not None and id(in_ram(tensor)) in found:
                    found[id(in_ram(tensor))].entry.places.append(Place(_FlatWeights(part), index))
    return found


def _note(
    found: dict[int, _Found], name: str, tensor: Tensor, place: Place, owner: nn.Module, is_parameter: bool
) -> None:
    if id(tensor) not in found:
        host = shape_of(tensor) if is_placed(tensor) else tensor
        found[id(tensor)] = _Found(id(tensor), Entry(name, host, [], is_parameter), [], is_plain(tensor))
    found[id(tensor)].entry.places.append(place)
    found[id(tensor)].owners.append(owner)


def _effective_marks(module: nn.Module, marks: Mapping[nn.Module, Mark]) -> dict[nn.Module, Mark]:
    """Each module's mark: its own, else that of the nearest module around it."""
    effective: dict[nn.Module, Mark] = {}
    _note_marks(module, "normal", marks, effective)
    return effective


def _note_marks(
    part: nn.Module, around: Mark, marks: Mapping[nn.Module, Mark], effective: dict[nn.Module, Mark]
) -> None:
    effective[part] = marks.get(part, around)
    for child in part.children():
        if child not in effective:
            _note_marks(child, effective[part], marks, effective)


def _streams(module: nn.Module, effective: Mapping[nn.Module, Mark]) -> bool:
    known = isinstance(module, LAYERS) or getattr(type(module), "STREAMABLE", False)
    return known and effective[module] != "fixed" and "forward" not in module.__dict__


def can_gather(module: nn.Module) -> bool:
    """Whether the module does nothing but look up rows of its weight."""
    rows_only = isinstance(module, nn.Embedding) and module.max_norm is None
    return rows_only and original_class(module).forward is nn.Embedding.forward


def _embedding(
    module: nn.Module, name: str, found: Mapping[int, _Found], effective: Mapping[nn.Module, Mark]
) -> Unit | None:
    """The unit of an embedding whose rows may be gathered; None if it's none, or another module reads its weight."""
    if effective[module] != "gather" or not can_gather(module):
        return None
    weight = module._parameters["weight"]
    assert weight is not None
    item = found[id(in_ram(weight))]
    owners: list[nn.Module] = list(dict.fromkeys(item.owners))
    shared = [owner for owner in owners if effective[owner] != "gather" or not can_gather(owner)]
    if shared or not item.plain or owners[0] is not module:
        return None
    return Unit(name or "embedding", WeightGroup(name, [item.entry]), owners, 0, "gather", gathers=True)


def _members(layers: Iterable[nn.Module], found: Mapping[int, _Found], taken: set[int]) -> list[_Found]:
    """The tensors that only `layers` own, or modules that belong to one of them."""
    owners = {id(part) for layer in layers for part in _belonging(layer)}
    return [
        item
        for item in found.values()
        if item.plain
        and item.entry.is_parameter
        and item.key not in taken
        and all(id(owner) in owners for owner in item.owners)
    ]


def _belonging(layer: nn.Module) -> Iterator[nn.Module]:
    """`layer`, and the modules whose weights are read in its forward only."""
    yield layer
    if isinstance(layer, nn.MultiheadAttention):
        yield layer.out_proj
    if parametrize.is_parametrized(layer):
        yield from layer.parametrizations.values()  # type: ignore[operator]


def _gated(root: nn.Module, layers: list[nn.Module]) -> list[nn.Module]:
    inside = [part for layer in layers for part in (layer, *_belonging(layer))]
    return list(dict.fromkeys([root, *inside]))


def normalised_weights(module: nn.Module) -> list[str]:
    """Attributes in which old `weight_norm` keeps a weight that it computes before each call."""
    return [hook.name for hook in module._forward_pre_hooks.values() if isinstance(hook, WeightNorm)]


def _split(units: list[Unit]) -> list[Unit]:
    """Divide units that are much larger than the others at their layers, so that their copies need no such room."""
    if not units:
        return units
    usual = median(unit.group.size_bytes for unit in units)
    divided: list[Unit] = []
    for unit in units:
        large = unit.group.size_bytes > OUTSIZED * usual or len(units) == 1
        divided += _layers_of(unit) if large else [unit]
    return divided


def _layers_of(unit: Unit) -> list[Unit]:
    """The unit divided at its layers, each with what is read in its forward only; the unit itself if it can't be."""
    layer_of: dict[int, nn.Module] = {}
    for layer in unit.modules:
        for part in _belonging(layer):
            layer_of.setdefault(id(part._parameters), layer)
    owners: dict[nn.Module | None, list[Entry]] = {}
    for entry in unit.group.entries:
        owners.setdefault(layer_of.get(id(entry.places[0].container)), []).append(entry)
    tied = any(len({id(place.container) for place in entry.places if isinstance(place.container, dict)}) > 1
               for entry in unit.group.entries)  # fmt: skip
    if tied or len(owners) < 2 or None in owners:
        return [unit]
    return [
        Unit(f"{unit.name}.{index}", WeightGroup(entries[0].name, entries), list(_belonging(layer)), unit.order,
             unit.mark)
        for index, (layer, entries) in enumerate(owners.items())
        if layer is not None
    ]  # fmt: skip


def _numbered(units: list[Unit]) -> list[Unit]:
    for order, unit in enumerate(units):
        unit.order = order
    return units
