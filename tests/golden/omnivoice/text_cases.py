"""What upstream's functions for texts were asked."""

from __future__ import annotations

TEXTS = (
    "",
    "Hi.",
    "  Hello,\r\n world \t again  ",
    "你好， 世 界！\nこんにちは 世界 です",
    "Grüße! Ça va? Ёлка, Ελλάδα, שלום, مرحبــا, नमस्ते, สวัสดี, 안녕하세요, ስላም, ꆈꌠ",
    "1,234.5 € – 50% ½ ٣ (ok) [laughter] <|text_end|> 🌍🎉",
    "（真的） [SIGH] [sigh]x [question-ah][surprise-wa] NI3 HAO3 [B EY1 S]",
    "tab\tand\x0bvertical\u3000wide\u00a0hard\u200bzero",
    "𠀀𠀁 𐍈 \U000e0041 Ａｂｃ　１２",
    "Mr. Who met Dr. No. It was 3 p.m., e.g. late; \"really?!\" (yes.) Etc. and so on… ok",
    "一，二。三！“四？”五；六：七、八。）九",
    "a.b,c;d:e!f?g" * 12,
    "No end mark here and a very long sentence that goes on without any of them until it stops",
)
NORMALISED = (
    ("I have 3 apples, 2.5 kg, on 3/4/2024 at 10:30 for $5.20.", ""),
    ("It takes 12 [laughter] or 13 [B EY1 S]  guitars [1 2]", "en"),
    ("  50% of 1,234,567 people; the 2nd of 23  ", "en"),
    ("我有3个苹果儿，2.5公斤 SHI4 [laughter]，嗯，那個東西是什麼？", ""),
    ("电话13812345678，房间号302。价格是￥59.9元（含税）", "zh"),
    ("２０２４年３月４日，星期一！ NI3 HAO3，１/２", ""),
    ("NI3 HAO3 3 apples", "zh"),
    ("Ich habe 12 Äpfel und 1.5 kg [sigh] 3", "de"),
    ("J'ai 80 ans", "fr"),
    ("3 of an unknown tongue 17", "aaf"),
    (" \n ", ""),
)
CHUNK_CHARS = (1, 2, 5, 17, 40, 1000)
PACES = (("", 10), ("Nice to meet you.", 25), ("你好。", 7), ("-", 100), ("\u0300", 3))
LANGUAGES = ("", "none", "None", "en", "EN", "english", "English", " English", "zh", "Chinese", "eng", "Mandarin",
             "yue", "Cantonese", "Fe'fe'", "ÖMIE", "arb", "standard arabic", "x")  # fmt: skip
INSTRUCTS = (
    "",
    " , ，",
    "Male",
    "female ,low pitch，british accent",
    "女，四川话",
    "whisper, 男, 青年",
    "四川话, british accent",
    "male, female",
    "male, 女",
    "young, adult",
    "femal",
    "四川",
    "child,child",
    "russian accent, 老年",
    ",elderly,",
)
INSTRUCT_TEXTS = ("Hello.", "你好。")
