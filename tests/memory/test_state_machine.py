"""Whatever happens in whatever order: the books are true and the outputs exact.

`python -m tests.memory.test_state_machine --steps 50000 [--seed 1]` runs it for longer, with other random numbers.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.memory.machine import Machine

STEPS = 2_000
STEPS_PER_MACHINE = 50
STEPS_AT_ONCE = 5_000


def run_machines(steps: int, number: int | None = None, *, shrink: bool = True) -> int:
    """Run machines for about `steps` steps; returns how many it were. number: the seed, None for always the same."""
    before = Machine.steps
    with collecting_only_what_is_new():
        run_state_machine_as_test(
            Machine if number is None else seed(number)(Machine),
            settings=settings(
                max_examples=-(-steps // STEPS_PER_MACHINE),
                stateful_step_count=STEPS_PER_MACHINE,
                deadline=None,
                derandomize=number is None,
                database=None,
                phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
                suppress_health_check=list(HealthCheck),
            ),
        )
    return Machine.steps - before


@contextmanager
def collecting_only_what_is_new() -> Iterator[None]:
    """Each machine collects garbage at its end, and needn't look at all of torch."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def test_the_books_are_true_and_outputs_exact_whatever_happens() -> None:
    assert run_machines(2 * STEPS) >= STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--shrink", action="store_true", help="look for the fewest steps that fail, for minutes")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    logging.disable()
    torch.set_num_threads(1)
    started, done = time.perf_counter(), 0
    while done < options.steps:
        done += run_machines(STEPS_AT_ONCE, options.seed + done, shrink=options.shrink)
        print(f"{done:,} steps in {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
