"""Writes `normalised.json`: what upstream's text normaliser makes of texts.

Run in an environment with voxcpm 2.0.3, wetext, inflect and regex, from the repository's root:

    python -m tests.golden.voxcpm.record_text

Where upstream fails (`null`), `ours` says what this pack's normaliser makes of the text with the same libraries.
"""

from __future__ import annotations

import argparse
import json
from importlib import metadata

from voxcpm.utils.text_normalize import TextNormalizer

from mizuoto_runtime.engines.voxcpm import normalise
from tests.golden.voxcpm.checkpoint import FOLDER

TEXTS = (
    "I have 3 cats, $5.20 and GPT-4.",
    "On 2024-05-01 at 10:30, 25% of 1,234 people left.",
    "他有3只猫，今天是2024年5月1日。",
    "价格是5.20元，x-2 = 3，GPT-4 和 25%。",
    "（注意）【重要】——面积 3² < 10，√4≈2。",
    "这 里 有 English words 和 空格。",
    "**bold** and [a link](http://example.com/a) and ![pic](a.png) end.",
    "# Heading",
    "<b>tags</b> stay out. He said “hello”.",
    "- an item of a list",
    "hello  world",
    "smile 😀 at me",
    "run `code` now",
    "an unknown ☃ sign, 7 times",
    "你好😀世界 ",
    "2.0.3 is a version.",
    "x² and ① of 12² apples",
    "At home, 😀 20% are left",
    "world,  5 kg of it",
    "😀 begins, and ends ٣ 😀",
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    theirs = TextNormalizer()
    texts = []
    for text in TEXTS:
        try:
            made = theirs.normalize(text)
        except (AssertionError, IndexError):
            made = None
        own = normalise.normalise(text)
        print(repr(text), repr(made), "" if made == own else repr(own))
        texts.append({"text": text, "upstream": made} | ({"ours": own} if made is None else {}))
    versions = {name: metadata.version(name) for name in ("voxcpm", "wetext", "inflect", "regex")}
    content = {"versions": versions, "texts": texts}
    text = json.dumps(content, ensure_ascii=False, indent=1)
    (FOLDER / "normalised.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
