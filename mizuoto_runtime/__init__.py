"""Text-to-speech engines in PyTorch and the memory runtime they share. Knows nothing of ComfyUI."""

__version__ = "0.1.0"
