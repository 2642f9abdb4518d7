"""Layers that several engines share, each faster in places than torch's own and equal to it; checks of values."""
