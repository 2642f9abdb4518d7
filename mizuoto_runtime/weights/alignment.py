"""Where small weights lie: at addresses at which their products have the same last bits as those of a copy.

BLAS sums the product of a single row and a weight in another order at an odd address, as a weight may have that lies
mapped in a file; its copy on a device, or in a slot that it streams through, lies at an even one. Products of large
weights go other ways (see `nn/products.py`), or are copied by the library first.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import torch

from .pages import give_back_pages

if TYPE_CHECKING:
    from torch import Tensor, nn

ALIGNMENT_BYTES = 64
SMALL_BYTES = 1 << 20


def align_small_weights(module: nn.Module) -> int:
    """Copy weights and buffers of up to 1 MiB that lie at odd addresses to even ones; returns the bytes copied.

    The file's pages of what was copied are given back. Parameters stay the same objects, and what is shared stays so.
    """
    copies: dict[tuple[object, ...], Tensor] = {}
    mapped: list[Tensor] = []
    for tensor in chain(module.parameters(), module.buffers()):
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.nbytes >= SMALL_BYTES:
            continue
        if tensor.data_ptr() % ALIGNMENT_BYTES == 0:
            continue
        mapped.append(tensor.data)
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place not in copies:
            copies[place] = tensor.data.clone()
        tensor.data = copies[place]
    give_back_pages(mapped)
    return sum(copy.nbytes for copy in copies.values())
