"""A copy of espeak-ng's library that is this module's alone, from the wheel `espeakng-loader`.

The library keeps everything in globals, and other code in the process may load the same file. So a copy is loaded: what
either does to its own never reaches the other.

The copy also reads a phoneme index that is corrected in five words, so that it writes the same IPA as the espeak-ng in
Piper. That one (commit 724808c) no longer sees the previous phoneme while it writes IPA, which 1.52.0 does: it writes
the glide `;` always as `ʲ` and the tap `*` always as `ɾ`, and German `r` before a vowel always as `r`. Only names are
corrected, none of the rules that choose phonemes.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import importlib.util
import locale
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from ..errors import MissingDependency

PACKAGE = "espeakng-loader"
VERSION = "0.2.4"
_LOG = logging.getLogger(__name__)
MAX_PATH_BYTES = 229 if sys.platform == "win32" else 159
"""The longest path of a data folder: espeak-ng keeps it in a fixed array."""

_REINSTALL = f"reinstall it with: pip install --force-reinstall --no-deps {PACKAGE}=={VERSION}"
_LIBRARY_NAMES = ("libespeak-ng.so", "libespeak-ng.dylib", "espeak-ng.dll")
_PHONEME_FILES = ("phontab", "phonindex", "phondata", "intonations")
_INDEX = "phonindex"
_INDEX_SHA256 = "384e5fa6f714ba5356c58008249b78699c31c1ad044b243068d263fb806b7d73"
_TAP_NAME, _GLIDE_NAME, _RETURN = 0xC9BE, 0xCAB2, 0x0001  # "ɾ" and "ʲ" in UTF-8; the end of a phoneme's program
_INDEX_WORDS = {416: _GLIDE_NAME, 657: _TAP_NAME, 5585: _GLIDE_NAME, 16674: _RETURN, 16682: _RETURN}


def installed_folder() -> Path:
    """Where the wheel put its library and data. MissingDependency if it isn't installed, or not whole."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependency(
            f"phonemes need the package {PACKAGE}; install it with: pip install {PACKAGE}=={VERSION}"
        )
    return Path(spec.submodule_search_locations[0])


def check_installed() -> None:
    """MissingDependency if the wheel isn't installed, or not whole. Loads nothing."""
    _files(installed_folder())


def load(folder: Path) -> ctypes.CDLL:
    """A new copy of the library in `folder`, ready to select a voice. MissingDependency if it can't be had."""
    path, data = _files(folder)
    private = Path(tempfile.mkdtemp(prefix="espeak-"))
    try:
        copy = shutil.copy(path, private / f"private-{path.name}")
        for name in _PHONEME_FILES:
            shutil.copy(data / name, private)
        (private / _INDEX).write_bytes(_corrected_index((data / _INDEX).read_bytes()))
        library = ctypes.CDLL(str(copy))
        _declare(library)
        _initialize(library, private, data)
    except OSError as error:
        raise MissingDependency(
            f"espeak-ng's library can't be loaded from a copy in {private}: {error}; "
            "set the variable TMPDIR to a folder where programs may run"
        ) from error
    finally:
        shutil.rmtree(private, ignore_errors=True)
    if private.exists():
        atexit.register(_unload, library, private)
    return library


def _files(folder: Path) -> tuple[Path, Path]:
    """The library and the data folder in `folder`."""
    path = next((folder / name for name in _LIBRARY_NAMES if (folder / name).is_file()), None)
    data = folder / "espeak-ng-data"
    missing = [name for name in (*_PHONEME_FILES, "lang") if not (data / name).exists()]
    if path is None or missing:
        raise MissingDependency(f"{folder} lacks {', '.join(missing) or ' or '.join(_LIBRARY_NAMES)}; {_REINSTALL}")
    return path, data


def _corrected_index(index: bytes) -> bytes:
    if hashlib.sha256(index).hexdigest() != _INDEX_SHA256:
        _LOG.warning("%s isn't version %s, so some phonemes may differ from Piper's; %s", PACKAGE, VERSION, _REINSTALL)
        return index
    words = bytearray(index)
    for position, word in _INDEX_WORDS.items():
        words[position * 2 : position * 2 + 2] = word.to_bytes(2, "little")
    return bytes(words)


def _initialize(library: ctypes.CDLL, phonemes: Path, data: Path) -> None:
    """Read the phonemes from one folder; languages and dictionaries are read later, from `data`."""
    context = ctypes.c_void_p()
    character_types = locale.setlocale(locale.LC_CTYPE)
    library.espeak_ng_InitializePath(short_path(phonemes))
    try:
        status = library.espeak_ng_Initialize(ctypes.byref(context))
    finally:
        locale.setlocale(locale.LC_CTYPE, character_types)
    library.espeak_ng_ClearErrorContext(ctypes.byref(context))
    if status:
        raise MissingDependency(f"espeak-ng can't read its phonemes (status {status:#x}); {_REINSTALL}")
    library.espeak_ng_InitializePath(short_path(data))


def _declare(library: ctypes.CDLL) -> None:
    """The C signatures of the functions used, from `speak_lib.h` and `espeak_ng.h`."""
    pointer_out = ctypes.POINTER(ctypes.c_void_p)
    library.espeak_TextToPhonemes.argtypes = [pointer_out, ctypes.c_int, ctypes.c_int]
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    library.espeak_ng_InitializePath.argtypes = [ctypes.c_char_p]
    library.espeak_ng_InitializePath.restype = None
    library.espeak_ng_Initialize.argtypes = [pointer_out]
    library.espeak_ng_Initialize.restype = ctypes.c_int
    library.espeak_ng_ClearErrorContext.argtypes = [pointer_out]
    library.espeak_ng_ClearErrorContext.restype = None
    library.espeak_ng_SetVoiceByName.argtypes = [ctypes.c_char_p]
    library.espeak_ng_SetVoiceByName.restype = ctypes.c_int


def short_path(folder: Path) -> bytes:
    """`folder` as espeak-ng wants it: in 8-bit characters, and in MAX_PATH_BYTES.

    For a longer path, a short name of the same folder. On Windows that is the file system's own; elsewhere a link in
    the folder for temporary files, which goes when the process ends. MissingDependency if there is none.
    """
    encoded = _encoded(folder)
    if encoded is None or len(encoded) > MAX_PATH_BYTES:
        encoded = _encoded(_short_name(folder))
    if encoded is not None and len(encoded) <= MAX_PATH_BYTES:
        return encoded
    raise MissingDependency(
        f"espeak-ng can't use {folder}: it takes paths of {MAX_PATH_BYTES} bytes in the system's 8-bit encoding, "
        f"and this one has no short name; install {PACKAGE} in a folder with a shorter, plain path"
    )


def _encoded(path: Path) -> bytes | None:
    encoding, errors = ("mbcs", "strict") if sys.platform == "win32" else ("utf-8", "surrogateescape")
    try:
        return str(path).encode(encoding, errors)
    except UnicodeEncodeError:
        return None


def _short_name(folder: Path) -> Path:
    if sys.platform == "win32":
        buffer = ctypes.create_unicode_buffer(32768)
        written = ctypes.windll.kernel32.GetShortPathNameW(str(folder), buffer, len(buffer))
        return Path(buffer.value) if written else folder
    holder = Path(tempfile.mkdtemp(prefix="espeak-"))
    atexit.register(shutil.rmtree, holder, ignore_errors=True)
    link = holder / "data"
    link.symlink_to(folder, target_is_directory=True)
    return link


def _unload(library: ctypes.CDLL, private: Path) -> None:
    """Let go of a library whose file couldn't be deleted while it was loaded, and delete it. Windows only."""
    if sys.platform == "win32":
        ctypes.windll.kernel32.FreeLibrary(ctypes.c_void_p(library._handle))
    shutil.rmtree(private, ignore_errors=True)
