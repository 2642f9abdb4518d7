"""`engines` and `models`: what there is, and fetching more."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from ..describe import describe, table
from ..engines.registry import ENGINES, all_engines, engine_spec
from ..library import ModelLibrary, roots_from
from ..settings import Settings, resolve
from ..types import Progress
from .arguments import Parser, add_settings, explicit_settings, show_progress

if TYPE_CHECKING:
    from .arguments import Commands


def add_to(commands: Commands) -> None:
    engines = commands.add_parser("engines", help="list the engines, their models and options")
    engines.add_argument("--json", action="store_true")
    add_settings(engines)
    engines.set_defaults(run=_engines)
    models = commands.add_parser("models", help="list, fetch, verify or remove model files")
    actions = models.add_subparsers(required=True, metavar="ACTION", parser_class=Parser)
    listing = actions.add_parser("list", help="models that are installed or can be fetched")
    listing.add_argument("engine", nargs="?", help=f"one of: {', '.join(ENGINES)}")
    add_settings(listing)
    listing.set_defaults(run=_list)
    fetching = actions.add_parser("fetch", help="download a published model")
    fetching.add_argument("engine", help=f"one of: {', '.join(ENGINES)}")
    fetching.add_argument("model")
    fetching.add_argument("--accept-licence", action="store_true", help="the model's licence allows what I do with it")
    add_settings(fetching)
    fetching.set_defaults(run=_fetch)
    for action, text, run in (
        ("verify", "compare an installed model's files with the published digests", _verify),
        ("remove", "remove an installed model's files", _remove),
    ):
        parser = actions.add_parser(action, help=text)
        parser.add_argument("engine", help=f"one of: {', '.join(ENGINES)}")
        parser.add_argument("model")
        add_settings(parser)
        parser.set_defaults(run=run)


def _settings(namespace: argparse.Namespace) -> Settings:
    return resolve(explicit_settings(namespace), config=namespace.config)


def _library(namespace: argparse.Namespace) -> ModelLibrary:
    return ModelLibrary(roots_from(_settings(namespace)))


def _engines(namespace: argparse.Namespace) -> int:
    library = _library(namespace)
    described = [describe(spec, library) for spec in all_engines()]
    print(json.dumps(described, ensure_ascii=False, indent=2) if namespace.json else table(described))
    return 0


def _list(namespace: argparse.Namespace) -> int:
    library = _library(namespace)
    specs = all_engines() if namespace.engine is None else (engine_spec(namespace.engine),)
    for spec in specs:
        installed = library.installed(spec)
        fetchable = {variant.id for variant in spec.variants if variant.files}
        for name in library.known(spec):
            absent = "can be fetched" if name in fetchable else "to be downloaded by hand"
            state = "installed" if name in installed else absent
            print(f"{spec.id}\t{name}\t{state}")
    return 0


def _fetch(namespace: argparse.Namespace) -> int:
    from ..fetch import endpoint_of, fetch

    settings = _settings(namespace)
    show = show_progress if sys.stderr.isatty() else _ignore_progress
    path = fetch(
        engine_spec(namespace.engine),
        namespace.model,
        ModelLibrary(roots_from(settings)),
        accepts_licence=namespace.accept_licence,
        endpoint=endpoint_of(settings),
        progress=show,
    )
    print(path)
    return 0


def _verify(namespace: argparse.Namespace) -> int:
    from ..upkeep import verify

    show = show_progress if sys.stderr.isatty() else _ignore_progress
    verdicts = verify(engine_spec(namespace.engine), namespace.model, _library(namespace), show)
    for verdict in verdicts:
        print(f"{verdict.path}\t{verdict.state}")
    return 0 if all(verdict.state == "right" for verdict in verdicts) else 1


def _remove(namespace: argparse.Namespace) -> int:
    from ..upkeep import remove

    size_bytes = remove(engine_spec(namespace.engine), namespace.model, _library(namespace))
    print(f"{size_bytes:,} bytes given back")
    return 0


def _ignore_progress(progress: Progress) -> None:
    pass
