"""Which errors mean that memory ran out: not every library raises the one that torch has for it."""

from __future__ import annotations

from ..errors import NotEnoughMemory

SIGNS = (
    "out of memory",
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "failed to allocate",
    "bad allocation",
    "std::bad_alloc",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "cudnn_status_internal_error_host_allocation_failed",
    "cufft_alloc_failed",
    "cusolver_status_alloc_failed",
    "cusparse_status_alloc_failed",
    "hipblas_status_alloc_failed",
    "miopen_status_alloc_failed",
    "ur_result_error_out_of_device_memory",
    "ur_result_error_out_of_host_memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error`, or one that it was raised from, is a failed allocation, on a device or in RAM."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, (MemoryError, NotEnoughMemory)) or _says_so(current):
            return True
        current = current.__cause__
    return False


def _says_so(error: BaseException) -> bool:
    if not isinstance(error, (RuntimeError, OSError)):
        return False
    if type(error).__name__ == "OutOfMemoryError":
        return True
    message = str(error).lower()
    return any(sign in message for sign in SIGNS)
