"""What the recorder of the front end asks upstream: texts, recordings, lengths and edits."""

from __future__ import annotations

from typing import Any

TEXTS = [
    "",
    " ",
    "a",
    "Hello world. Some call me nature, others call me mother nature.",
    "Well; “quoted” and ‘single’ — dash… (brackets) [x] {y} <z>",
    "Hello,world!No space:here;and\"there'is one.",
    "don't re-use foo_bar, e-mail 3.14% of 1,000.50 or v1.2-beta... -- U.S.A. a+b #1 x&y AT&T C++ xC++ c# T%",
    "line one\nline two\r\nline three\ttab\u3000wide\u00a0kept\r",
    "0 12 345 6.7 8-9 10% №5 ½ ² ١٢٣",
    "naïve café Ångström Łódź Straße ñandú œuvre İstanbul ﬁne",
    "Привет, мир! Γειά σου Κόσμε; שלום עולם مرحبا हिन्दी ไทย",
    "こんにちは、カタカナの世界ー。",
    "안녕하세요, 한국어 ㄱㄴㄷ 텍스트입니다.",
    "ㄅㄆㄇ ㈱ ㎏ ㋿ ⼀ 〇 〆 々 ～ ・",
    "😀 hello👩‍👩‍👧world 🇨🇳👍🏽!",
    "你好，世界！",
    "对，这就是我，万人敬仰的太乙真人。",
    "银行行长重新调重量，会计会长还还书。长城很长，重庆重要。",
    "我们的孩子们跑着去了吗？妈妈的东西呢，桌子上吧。",
    "绿色的女儿旅行，吕律师略有虐待。",
    "不是不要不去一个一天一起一样，一不小心。你好老虎很好展览馆。",
    "我在3D打印T恤，用AT&T的5G网络和C++，卡拉OK吧！foo-bar你好a_b。",
    "今天2024年1月1日，气温-3.5℃，涨了20.5%。",
    "全角：ＡＢＣ１２３；（括号）《书名》「引用」——省略……",
    "Hello你好world世界，good早上morning好。",
    "日本語の漢字とカナ混じり文、東京タワー。",
    "한국漢字혼용 텍스트",
    "𠮷野家𠮷𠮷abc𠀀，㐀㐁䶵鿿豈更",
    "龘靐齉爨，囧囍",
    "；；;;“”‘’",
    "著名的著作，说着说着，得得到，地地道道，了了解",
]

CHUNKED = [
    "",
    "   ",
    "One. Two, three; four: five! Six? Seven.",
    "No end marks at all in this long sentence which simply goes on and on without a pause",
    "你好。我是谁？你在哪里！这是一个，很长的；句子：结束。",
    "Mixed 中文，and English. 混合；text! 完。Done",
    "a.b c.d 3.14 is pi.  Two  spaces.\nA line\n\nbreak. Tail ",
    " leading. “Quoted!” then… dots... end",
    "！！。。,, .. ;;",
    "Ünïcödé, ñ; é. Привет. Мир!",
    "😀. 👍! ok",
]
MAX_CHARS = [-3, 0, 1, 5, 9, 10, 12, 20, 21, 33, 50, 135, 1000]

ENDINGS = [
    "Hi!",
    "Hi",
    "Hi.",
    "Hi. ",
    "Hi.  ",
    "Hi。",
    "Hi。 ",
    "你好",
    "你好！",
    "...",
    " x ",
    "Hi.\n",
    "é",
    "😀",
    "a. b",
]

SPEECH = 6_000
RECORDINGS: list[dict[str, Any]] = [
    {"rate_hz": 24_000, "stretches": [[2.0, SPEECH]]},
    {"rate_hz": 24_000, "stretches": [[0.5, 0], [1.5, SPEECH], [0.6, 40]]},
    {"rate_hz": 44_100, "channels": 2, "stretches": [[0.3, 0], [3.2, SPEECH], [2.6, 30], [1.4, 800], [0.7, 0]]},
    {"rate_hz": 48_000, "channels": 2, "stretches": [[7.0, SPEECH], [3.0, 0], [7.5, SPEECH]]},
    {"rate_hz": 22_050, "stretches": [[7.3, SPEECH], [0.25, 350], [3.1, SPEECH], [0.3, 0], [4.0, SPEECH]]},
    {"rate_hz": 16_000, "stretches": [[17.0, SPEECH]]},
    {"rate_hz": 8_000, "stretches": [[0.4, 20], [2.2, SPEECH], [1.7, 0], [1.1, 30_000]]},
    {"rate_hz": 8_000, "channels": 2, "stretches": [[14.0, SPEECH], [0.2, 0]]},
    {"rate_hz": 11_025, "stretches": [[1.0, SPEECH], [1.005, 0], [1.0, SPEECH], [0.995, 0], [1.0, SPEECH]]},
    {"rate_hz": 32_000, "channels": 3, "stretches": [[0.7, 2500], [1.3, 0], [2.0, 4000]]},
    {"rate_hz": 96_000, "stretches": [[0.35, 28_000]]},
    {"rate_hz": 24_000, "stretches": [[0.05, 25_000]]},
    {"rate_hz": 24_000, "stretches": [[0.01, 900], [2.0, 1700], [0.4, 1900], [0.0073, 600]]},
    {"rate_hz": 12_000, "stretches": [[5.9, SPEECH], [1.2, 10], [5.9, 3000], [1.2, 10], [5.9, SPEECH]]},
    {"rate_hz": 44_100, "channels": 2, "bits": 24, "stretches": [[0.3, 0], [1.9, SPEECH], [1.6, 2], [0.8, 700]]},
    {"rate_hz": 8_000, "bits": 24, "stretches": [[0.4, 20], [2.2, SPEECH], [1.7, 0], [1.1, 30_000]]},
    {"rate_hz": 16_000, "bits": 24, "stretches": [[7.3, SPEECH], [0.25, 350], [3.1, SPEECH], [0.3, 0], [4.0, SPEECH]]},
]
"""Of 16 bits, unless they say more."""

LONG = "The quick brown fox jumps over the lazy dog, again and again; then it rests: done! Is it? Yes. " * 2
CHINESE = "这是一个很长的句子它没有任何标点符号但是一直说下去说到大家都不想听了为止"
SPEECHES: list[dict[str, Any]] = [
    {"recording": 0, "reference_text": "Some call me nature.", "text": "Hello there, general."},
    {"recording": 0, "reference_text": "Hi", "text": "Short."},
    {"recording": 0, "reference_text": "Hi there, this is it!", "text": "九个字"},
    {"recording": 1, "reference_text": "对，这就是我。", "text": "万人敬仰的太乙真人，说得对。", "speed": 0.7},
    {"recording": 2, "reference_text": "Some call me nature, others call me mother nature.", "text": LONG},
    {"recording": 2, "reference_text": "Some call me nature, others call me mother.", "text": LONG, "speed": 1.6},
    {"recording": 2, "reference_text": "Some call me nature.", "text": LONG, "fix_duration": 14.5},
    {"recording": 0, "reference_text": "Some call me nature.", "text": "Fixed length.", "fix_duration": 4.321},
    {"recording": 0, "reference_text": "Some call me nature.", "text": "Too short for it.", "fix_duration": 0.5},
    {"recording": 6, "reference_text": "Eight kilohertz.", "text": LONG, "cross_fade_duration": 0.0},
    {"recording": 9, "reference_text": "Quiet, and three channels", "text": LONG, "cross_fade_duration": 0.037},
    {"recording": 2, "reference_text": "a. b", "text": LONG, "cross_fade_duration": 2.5, "fix_duration": 9.0},
    {"recording": 10, "reference_text": "A rather long text for so little sound.", "text": "Yes. And no, not at all."},
    {"recording": 0, "reference_text": "你好。", "text": f"{CHINESE}。\n", "fix_duration": 9.0},
    {"recording": 0, "reference_text": "你好。", "text": f"{CHINESE}。{CHINESE}！ \n\n"},
]

LEVEL = 0.25
"""What the recorder's vocoder begins with."""

EDITS: list[dict[str, Any]] = [
    {"spans": [[1.42, 2.44], [4.04, 4.9]], "seconds": [1.2, 1]},
    {"spans": [[0.84, 1.4], [1.92, 2.4], [4.26, 5.0]], "seconds": None},
    {"spans": [[0.0, 0.5]], "seconds": [0.8]},
    {"spans": [[2.0, 2.0]], "seconds": [0.333]},
    {"spans": [[0.5, 1.0], [1.0, 1.5]], "seconds": [0.1, 0.0]},
    {"spans": [[4.0, 9.0]], "seconds": None},
    {"spans": [[0.112, 0.144], [3.0079, 3.01]], "seconds": None},
]
EDITED_SECONDS = 5.11
EDITED_AMPLITUDE = 32_000
