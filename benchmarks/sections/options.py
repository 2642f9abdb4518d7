"""How large and how long a benchmark runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    """quick: small models and few rounds. scale: share of the models' layers. rounds: 0 = each section's own."""

    quick: bool = False
    scale: float = 1.0
    rounds: int = 0

    def count(self, usual: int, quick: int) -> int:
        """Rounds: those asked for, else the section's usual number, or its quick one."""
        return self.rounds or (quick if self.quick else usual)

    def layers(self, usual: int) -> int:
        """How many of a model's `usual` layers are measured."""
        return max(2, round(usual * self.scale * (0.15 if self.quick else 1.0)))
