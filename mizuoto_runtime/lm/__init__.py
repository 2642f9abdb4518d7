"""Blocks of autoregressive language models with several users."""
