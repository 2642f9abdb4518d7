"""Sentences of any script: where a text is split, where it isn't, that nothing is lost, and how long it takes."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mizuoto_runtime.text.espeak import read_clauses
from mizuoto_runtime.text.graphemes import is_boundary
from mizuoto_runtime.text.sentences import split_sentences

SPLIT = {
    "english": ["He left.", "She stayed!", "Did they?", "Yes."],
    "quotes": ["“Is it?”", "‘It is.’", '"Good."', "(So be it.)", "«Oui.»", "End."],
    "numbers": ["It costs 3.14 dollars.", "It was 1999.", "Then it was over!", "5 came back."],
    "chinese": ["他说：“你好。”", "今天天气怎么样？", "真好！", "走吧"],
    "japanese": ["こんにちは。", "「元気ですか？」", "はい！"],
    "halfwidth": ["ﾊｲ｡", "ｲｲｴ｡"],
    "hindi": ["नमस्ते।", "आप कैसे हैं?", "वह गया॥", "ठीक है।"],
    "arabic": ["مرحبا يا صديقي.", "كيف حالك؟", "هذا جميل!", "نعم"],
    "urdu": ["سلام دوستو۔", "آپ کیسے ہیں؟", "خوب"],
    "armenian": ["Բարեւ։", "Շնորհակալ եմ։"],
    "amharic": ["ሰላም።", "እንዴት ነህ፧", "ደህና"],
    "burmese": ["မင်္ဂလာပါ။", "နေကောင်းလား။"],
    "khmer": ["សួស្តី។", "សុខសប្បាយទេ។"],
    "tibetan": ["བཀྲ་ཤིས་བདེ་ལེགས།"],
    "russian": ["Привет, мир!", "Как дела?", "Хорошо."],
    "greek": ["Καλημέρα.", "Ναι!", "Όχι."],
    "korean": ["안녕하세요.", "어떻게 지내세요?"],
    "spanish": ["¡Hola!", "¿Cómo estás?", "Bien."],
    "french": ["Bonjour !", "Ça va ?", "Oui."],
}
UNSPACED = {"chinese", "japanese", "halfwidth", "burmese", "khmer"}

WHOLE = [
    "It costs 3.14 dollars or 1,000.50.",
    "Dr. Smith and Mrs. Jones met Prof. Brown, e.g. at 10 a.m. on Jan. 5, i.e. today.",
    "J. R. R. Tolkien wrote it.",
    "The U.S. Army left.",
    "Das gilt z. B. heute, z.B. auch am 3. Mai und für Friedrich II. von Preußen.",
    "Wait... really? no… Truly...",
    "See https://example.com/a?b=c.d or mail me@example.org. OK",
    "“Stop!” he said.",
    "Hi!How are you?fine.",
    "Он родился в 1999 г. в Москве, т. е. давно.",
    "د. محمد هنا",
    "डॉ. सिंह आए",
    "Say [[həlˈoʊ. Wˈɜːld! 好。]] now",
    "One. [[ə]] Two. [[ɪ]]",
    "[[ə]]. Two",
    "A single\nline break. is a space",
    "! ! ! ?",
    "...",
    "🙂",
    "１２．５",
]


@pytest.mark.parametrize("name", SPLIT)
def test_sentences_are_told_apart(name: str) -> None:
    expected = SPLIT[name]
    assert split_sentences(("" if name in UNSPACED else " ").join(expected)) == expected


@pytest.mark.parametrize("text", WHOLE)
def test_a_sentence_stays_whole(text: str) -> None:
    assert split_sentences(text) == [text]


@pytest.mark.parametrize("text", ["", " ", "\n\n\t \r\n", "\u3000"])
def test_a_blank_text_has_no_sentences(text: str) -> None:
    assert split_sentences(text) == []


@pytest.mark.parametrize("blank_line", ["\n\n", "\r\n\r\n", "\n \t\n", "\n\n\n\n", "\u2029"])
def test_a_blank_line_ends_a_sentence_whatever_stands_before_it(blank_line: str) -> None:
    assert split_sentences(f"A title{blank_line}the text,{blank_line}and… {blank_line}more") == [
        "A title",
        "the text,",
        "and…",
        "more",
    ]


def test_a_stop_before_a_line_break_and_a_capital_ends_a_sentence() -> None:
    assert split_sentences("He went away.\nShe stayed.\r\nSo it was.") == ["He went away.", "She stayed.", "So it was."]


def test_a_block_that_is_not_closed_on_its_line_is_plain_text() -> None:
    assert split_sentences("[[ He went. She\nstayed. ]] So") == ["[[ He went.", "She\nstayed. ]] So"]


def test_a_long_sentence_is_cut_at_clause_punctuation_in_even_shares() -> None:
    clause = "the quick brown fox jumps over the lazy dog, "
    pieces = split_sentences(clause * 10, max_chars=100)
    assert all(piece.endswith("dog,") and len(piece) <= 100 for piece in pieces)
    assert {piece.count(",") for piece in pieces} == {2}


@pytest.mark.parametrize("clause", ["我们今天去了公园，", "وذهبنا إلى الحديقة،  ", "слово за слово — ", "人々、"])
def test_clauses_of_other_scripts_are_kept_whole(clause: str) -> None:
    pieces = split_sentences(clause * 40, max_chars=60)
    assert len(pieces) > 1
    assert all(piece.endswith(clause.strip()) for piece in pieces)


def test_a_doubtful_sentence_end_is_a_better_cut_than_a_comma() -> None:
    pieces = split_sentences("one, two, three, in the U.S. Army, four, five, six", max_chars=40)
    assert pieces == ["one, two, three, in the U.S.", "Army, four, five, six"]


def test_without_punctuation_a_long_text_is_cut_at_spaces() -> None:
    words = [f"word{number}" for number in range(5_000)]
    pieces = split_sentences(" ".join(words), max_chars=100)
    assert max(map(len, pieces)) <= 100
    assert " ".join(pieces).split() == words


GRAPHEMES = ["e\u0301\u0323", "👩‍👩‍👧‍👦", "👍🏽", "🇩🇪", "한", "क्षि", "❤️", "각", "ก็", "\u1112\u1161\u11ab"]


@pytest.mark.parametrize("grapheme", GRAPHEMES, ids=ascii)
@pytest.mark.parametrize("max_chars", [11, 12, 13, 14])
def test_a_cut_breaks_no_character_as_readers_see_it(grapheme: str, max_chars: int) -> None:
    text = grapheme * 200
    pieces = split_sentences(text, max_chars=max_chars)
    assert "".join(pieces) == text
    assert all(piece == grapheme * (len(piece) // len(grapheme)) for piece in pieces)
    assert max(map(len, pieces)) <= max_chars


def test_more_combining_marks_than_fit_are_cut_all_the_same() -> None:
    text = "a" + "\u0301" * 1_000
    pieces = split_sentences(text, max_chars=50)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 50


def test_boundaries_lie_between_characters_alone() -> None:
    text = "ab\r\ne\u0301🇩🇪🇫🇷\u1100\u1161\u11a8x"
    boundaries = [place for place in range(len(text) + 1) if is_boundary(text, place)]
    parts = [text[start:stop] for start, stop in itertools.pairwise(boundaries)]
    assert parts == ["a", "b", "\r\n", "e\u0301", "🇩🇪", "🇫🇷", "\u1100\u1161\u11a8", "x"]


def test_no_cut_falls_inside_hand_written_phonemes() -> None:
    block = "[[" + "ə, ɪ " * 30 + "]]"
    pieces = split_sentences(f"say {block} now, " * 20, max_chars=100)
    assert all(piece.count("[[") == piece.count("]]") for piece in pieces)
    assert max(map(len, pieces)) == len(block)
    assert sum(piece.count(block) for piece in pieces) == 20


MIXED = st.text(
    st.one_of(
        st.sampled_from(list(".!?…。！？।؟,;:、，'\"”)([]-\n\t  AaBb1अ好م🙂\u0301\u200d")),
        st.characters(exclude_categories=()),
    ),
    max_size=300,
)


@settings(max_examples=300, deadline=None)
@given(MIXED, st.integers(1, 60))
def test_nothing_but_spaces_is_lost_and_pieces_are_short(text: str, max_chars: int) -> None:
    pieces = split_sentences(text, max_chars=max_chars)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(piece and piece == piece.strip() for piece in pieces)
    assert all(len(piece) <= max_chars for piece in pieces if "[[" not in piece)
    position = 0
    for piece in pieces:
        found = text.index(piece, position)
        assert not text[position:found].strip()
        position = found + len(piece)


@pytest.mark.parametrize(
    "unit",
    [
        "word ",
        "好",
        "He left. ",
        "...",
        ". ",
        '."',
        "[[",
        "[[a]] ",
        "[[\n",
        "\n",
        " ",
        "\u0301",
        "🇩🇪",
        ", ",
        "a" + " " * 999,
    ],
    ids=ascii,
)
def test_no_text_of_a_hundred_thousand_characters_takes_long(unit: str) -> None:
    text = (unit * 100_000)[:100_000]
    started = time.process_time()
    pieces = split_sentences(text)
    assert time.process_time() - started < 3.0
    assert max(map(len, pieces), default=0) <= 400


def test_a_hundred_thousand_characters_of_prose_take_well_under_a_second() -> None:
    text = ("It was the best of times, it was the worst of times. " * 2_000)[:100_000]
    started = time.process_time()
    assert len(split_sentences(text)) == 1_887
    assert time.process_time() - started < 0.5


def test_time_grows_with_the_length_and_no_faster() -> None:
    def seconds(length: int) -> float:
        started = time.process_time()
        split_sentences(("He left, she stayed. " * (length // 21 + 1))[:length])
        return time.process_time() - started

    short = min(seconds(20_000) for _ in range(3))
    assert min(seconds(200_000) for _ in range(3)) < 40 * short


@pytest.mark.parametrize("max_chars", [0, -5])
def test_a_limit_below_one_is_refused(max_chars: int) -> None:
    with pytest.raises(ValueError, match=f"max_chars is {max_chars}"):
        split_sentences("text", max_chars=max_chars)


PARAGRAPHS = {
    "en-us": "Dr. Smith came home, tired. He paid $3.14 for it! “Stop!” he said. The U.S. Army left at 10 a.m. today. "
    "J. R. R. Tolkien wrote it. Wait... Really? See p. 12, e.g. this one. (It was late.) In 1999 it ended. "
    "It was 1999. King Henry VIII. was fat.\nA list: one, two; three. She asked: “Is it true?” Yes. "
    "Visit www.example.com. The end…",
    "de": "Am 3. Mai kam er. Das kostet 3,50 Euro. Er sagte: „Komm!“ Das ist z. B. heute so. Herr Dr. Müller ist da. "
    "Friedrich II. war König. Um 8.30 Uhr? Das ist usw. gut. „Ja.“ Es war 1999. Dann nicht mehr.",
    "fr": "Bonjour ! Ça va ? M. Dupont est là. « Oui. » Il est 8 h 30. C'est l'été… Louis XIV. régna.",
    "es": '¿Cómo estás? ¡Hola! El Sr. García vino. Son las 3. Núm. 5. «Sí.» Dijo: "No." Adiós.',
    "ru": "Привет, мир! Он родился в 1999 г. в Москве. Как дела? «Да.» А. С. Пушкин — поэт. Цена 5 руб. 30 коп. Всё.",
    "ar": "مرحبا يا صديقي. كيف حالك؟ نعم، أنا بخير. د. محمد هنا. هذا جميل!",
    "hi": "नमस्ते। आप कैसे हैं? डॉ. सिंह आए। यह अच्छा है! वह गया॥ ठीक है।",
    "cmn": "你好。今天天气怎么样？他说：“好的。”真的！！3.5米长。好……我走了，他也走了。",
    "hu": "Jó napot. IV. Béla király volt. Hogy vagy? Az 1. nap jó.",
    "tr": "Merhaba. Nasılsın? 3. sınıf burada. Dr. Yılmaz geldi.",
    "pl": "Dzień dobry. Np. jutro. Tak? Rok 1999 r. minął. Koniec.",
    "uk": "Добрий день. Як справи? Так! Добре.",
    "te": "నమస్తే. ఎలా ఉన్నారు? బాగున్నాను.",
    "ka": "გამარჯობა. როგორ ხარ? კარგად!",
    "ja": "こんにちは。元気ですか？はい！",
}


def spoken(text: str, voice: str) -> list[str]:
    """The phonemes of each sentence, by espeak-ng's own division."""
    sentences, sentence = [], ""
    for clause in read_clauses(text, voice):
        sentence += clause.phonemes + clause.mark
        if clause.ends_sentence:
            sentences.append(sentence)
            sentence = ""
    return [*filter(None, sentences), sentence] if sentence else [*filter(None, sentences)]


@pytest.mark.parametrize("voice", PARAGRAPHS)
def test_a_paragraphs_pieces_have_the_phonemes_of_the_whole(voice: str) -> None:
    text = PARAGRAPHS[voice]
    pieces = split_sentences(text)
    assert len(pieces) >= 3
    assert len(spoken(text, voice)) >= len(pieces)
    assert [sentence for piece in pieces for sentence in spoken(piece, voice)] == spoken(text, voice)


TERMINATORS = ".!?؟۔।॥։።፧။៕。！？｡︒︕﹒﹖﹗！．？‼⁇⁈⁉‽᙮᠃᠉᥄᭚᱾꓿꘎꘏꛳꡶꣎꤯꧈꩝꫰꯫𑁇𑅁𑇅𑈸𑑋𑗂𑙁𑜼𖫵"


@pytest.mark.parametrize("mark", TERMINATORS, ids=ascii)
def test_the_terminators_of_other_scripts_end_sentences(mark: str) -> None:
    assert split_sentences(f"好好好{mark} 好") == [f"好好好{mark}", "好"]
