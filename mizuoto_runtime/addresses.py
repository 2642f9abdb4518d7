"""Addresses that models are fetched from."""

from __future__ import annotations

import urllib.parse

from .errors import InputError

HUGGING_FACE = "https://huggingface.co"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MAX_CHARACTERS = 2048


def checked_endpoint(text: str, what: str) -> str:
    """The address of a hub, without a slash at its end. InputError, which begins with `what`, if it is none.

    Plain http will do where it is asked for: what comes is checked against its digest.
    """
    problem = _problem(text)
    if problem:
        raise InputError(f"{what} is {text[:200]!r}; {problem}, as in {HUGGING_FACE}")
    return text.strip().rstrip("/")


def _problem(text: str) -> str:
    text = text.strip()
    if len(text) > MAX_CHARACTERS or any(sign.isspace() or not sign.isprintable() for sign in text):
        return f"it must be an address without spaces, of at most {MAX_CHARACTERS} characters"
    try:
        parts = urllib.parse.urlsplit(text)
        _ = parts.port
    except ValueError:
        return "it must be an https or http address"
    if parts.scheme not in ("https", "http") or not parts.hostname:
        return "it must be an https or http address"
    if parts.username is not None or parts.query or parts.fragment:
        return "it must have nothing but a host, a port and a path"
    return ""


def check_file_address(url: str) -> None:
    """InputError if a file's own address is neither https nor on this machine."""
    parts = urllib.parse.urlsplit(url)
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)):
        raise InputError(f"{url!r} isn't an https address to download from")
