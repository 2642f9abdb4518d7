"""What is dropped is gone: its module, its blocks, its locked RAM, on the device and in the process."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from mizuoto_runtime.memory.locks import SimulatedLocks
from tests.memory.test_manager import Rig
from tests.memory.tiny import KINDS, SIZE, UNIT, component, output

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quick_collection() -> Iterator[None]:
    """Collecting garbage looks at what these tests make, not at all of torch."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dropped_handle_leaves_nothing_behind(kind: str) -> None:
    locks = SimulatedLocks()
    handle = component(kind)
    rig = Rig(max(handle.minimum_bytes(1), handle.size_bytes - 1))
    rig.manager.memory.locks_for = lambda device: locks
    with rig.context().use([handle], 0):
        output(handle.module)
        assert rig.manager.memory.pins.stats().pinned_bytes > 0 or handle.whole
        assert handle.residence is not None
        blocks = [group.placed_block for group in handle.division.groups if group.placed_block is not None]
        kinds = {type(part) for part in handle.module.modules() if "_mizuoto_gated" in type(part).__dict__}
        watched = [weakref.ref(each) for each in (handle, handle.residence, handle.module, *kinds)]
        watched += [weakref.ref(block.untyped_storage()) for block in blocks]
        watched += [weakref.ref(each) for each in (handle.residence.streamer,) if each is not None]
    del blocks, kinds, handle
    assert rig.device.held_bytes() == 0, "at once, without collecting garbage"
    gc.collect()
    rig.manager.memory.pins.trim()
    assert [each() for each in watched if each() is not None] == []
    assert rig.manager.memory.pins.stats().pinned_bytes == 0
    assert locks.registered == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_module_goes_with_its_handle_at_once(kind: str) -> None:
    """Without collecting garbage: until that happens, gigabytes would lie in RAM."""
    gc.disable()
    try:
        handle = component(kind)
        assert handle.size_bytes > 0
        module = weakref.ref(handle.module)
        del handle
        assert module() is None
    finally:
        gc.enable()


def test_a_module_may_outlive_its_handle_and_is_its_own_kind_again() -> None:
    rig, handle = Rig(SIZE - UNIT), component()
    module = handle.module
    kinds = [type(part) for part in component().module.modules()]
    with rig.context().use([handle], 0):
        assert [type(part) for part in module.modules()] != kinds
    watched = weakref.ref(handle)
    del handle
    assert watched() is None
    assert [type(part) for part in module.modules()] == kinds
    assert not any("_mizuoto_gate" in part.__dict__ for part in module.modules())


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells how much RAM is held now")
def test_nothing_grows_over_200_rounds_of_loading_and_dropping() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.rounds"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["most_pinned"] > 1 << 20
    assert (found["pinned"], found["registered"], found["device"]) == (0, 0, 0)
    rss = found["rss_bytes"]
    first, last = min(rss[:40]), min(rss[-40:])
    assert last <= 1.001 * first, f"{first:,} bytes at first, {last:,} at last"


def test_a_process_ends_quietly_with_models_on_the_device() -> None:
    code = (
        "from tests.memory.test_manager import Rig\n"
        "from tests.memory.tiny import SIZE, UNIT, component, output\n"
        "rig, handle = Rig(SIZE - UNIT), component()\n"
        "phase = rig.context().use([handle], 0)\n"
        "phase.__enter__(); output(handle.module)\n"
        "cycle = [handle, rig]; cycle.append(cycle)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
