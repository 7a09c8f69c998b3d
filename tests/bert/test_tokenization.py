"""The tokeniser gives the original's ids: against transformers' copy of it, and fact by fact."""

import json
import random
import tracemalloc
import unicodedata

import pytest

from multiberts.bert import tokenization
from multiberts.bert.tokenization import SPECIAL_TOKENS, WordPiece
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError
from multiberts.tests.bert.code_points import assigned_characters, telling_characters

pytestmark = pytest.mark.seconds

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

# A vocabulary in which every kind of character has pieces, so that a wrong character shows in the ids.
PIECES = [
    *SPECIAL_TOKENS,
    *LETTERS,
    *("##" + letter for letter in LETTERS),
    *"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    *("un", "##aff", "##able", "the", "mask", "naive", "##ss", "##ing"),
    *("ß", "##ß", "™", "ﬁ", "½", "ς", "σ", "##ς", "##σ", "ο", "##ο", "中", "文", "。", "ᄒ", "##ᅡ"),
    *("ı", "##ı", "ø", "##ø", "æ", "##æ", "й", "и", "##и", "ら", "##ら", "\ue000", "##\ue000"),
]


@pytest.fixture(scope="module")
def vocabulary_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tokenizer(vocabulary_path):
    return Vocabulary.open(vocabulary_path)


class Oracle:
    """The classes behind BertTokenizerLegacy, with the word limit of the original (200)."""

    def __init__(self, vocabulary):
        from transformers.models.bert.tokenization_bert_legacy import (
            BasicTokenizer,
            WordpieceTokenizer,
        )

        self.ids = {piece: number for number, piece in enumerate(vocabulary)}
        self.basic = BasicTokenizer(do_lower_case=True)
        self.wordpiece = WordpieceTokenizer(self.ids, "[UNK]", max_input_chars_per_word=200)

    def encode(self, text):
        words = self.basic.tokenize(text)
        return [self.ids[piece] for word in words for piece in self.wordpiece.tokenize(word)]


@pytest.fixture(scope="module")
def oracle(tokenizer):
    return Oracle(tokenizer.pieces)


CONTEXTS = ("{}", "a{}b", "{} x", "x{}", "a{}", "{0}{0}.", "\u03a3{}", "a\u0301{}\u0323")
CHARACTERS = pytest.mark.parametrize(
    "characters",
    [
        pytest.param(telling_characters, id="telling"),
        pytest.param(assigned_characters, id="every", marks=pytest.mark.slow),
    ],
)


@pytest.mark.parametrize(
    ("context", "characters"),
    [
        ("{}", telling_characters),
        *(pytest.param(each, assigned_characters, marks=pytest.mark.slow) for each in CONTEXTS),
    ],
)
def test_ids_are_the_originals_on_assigned_code_points(tokenizer, oracle, context, characters):
    texts = [context.format(character) for character in characters()]
    assert len(texts) > (140_000 if characters is assigned_characters else 25_000)
    found = tokenizer.encode_batch(texts)
    wrong = [t for t, ids in zip(texts, found, strict=True) if ids != oracle.encode(t)]
    assert not wrong, f"{len(wrong)} texts differ, the first are {wrong[:10]!r}"


@CHARACTERS
def test_assigned_code_points_give_the_originals_words(oracle, characters):
    """Ids can hide a wrong character behind [UNK]; words cannot."""
    for character in characters():
        text = f"a{character}b {character}"
        assert list(tokenization.split_words(text)) == oracle.basic.tokenize(text), hex(
            ord(character)
        )


@CHARACTERS
def test_a_cased_model_reads_what_transformers_reads(tmp_path, characters):
    """The copy of the original on code points, and the library's tokeniser on mixed text."""
    transformers = pytest.importorskip("transformers")
    from transformers.models.bert.tokenization_bert_legacy import BasicTokenizer

    basic = BasicTokenizer(do_lower_case=False)
    for character in characters():
        # Where it composes characters (NFC), which the original and BertTokenizerFast do not.
        if unicodedata.normalize("NFC", character) == character:
            text = f"A{character}b {character}"
            found = list(tokenization.split_words(text, lower_case=False))
            assert unicodedata.normalize("NFC", text) != text or found == basic.tokenize(text), text
    pieces = [*PIECES, *LETTERS.upper()[:26], *("##" + each for each in LETTERS.upper()[:26])]
    pieces += ["É", "##É", "é", "##é", "\u0301", "##\u0301", "İ", "Σ", "##Σ", "Zürich", "The"]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokenizer = Vocabulary.open(tmp_path / "vocab.txt")
    assert not tokenizer.lower_case
    theirs = transformers.BertTokenizerFast(
        vocab={p: n for n, p in enumerate(pieces)}, do_lower_case=False
    )
    texts = [
        "The Élan of Zürich, e\u0301lan E\u0301lan; ÉÉ, ABC's \u4e2dABC\u6587.", "ΑΣ ΣΑΣ. İI ıi",
        "NASA\tU.S.A.\u3000x\u200by",
        "THE the The tHe", "\uff21\uff22 \ufb01ﬁ \U0001f600ok",
    ]  # fmt: skip
    draw = random.Random(0)
    pool = "abcABCÉé\u0301ΣσİıZürich \u4e2d\u6587.,-'" + LETTERS.upper()
    texts += ["".join(draw.choice(pool) for _ in range(30)) for _ in range(500)]
    found = tokenizer.encode_batch(texts)
    assert found == [theirs.encode(text, add_special_tokens=False) for text in texts]
    upper = [tokenizer.pieces[number] for number in tokenizer.encode("The THE")]
    assert upper == ["The", "T", "##H", "##E"]


@pytest.mark.parametrize(
    "string_seed", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2, 3))]
)
def test_ids_are_the_originals_on_random_strings(tokenizer, oracle, string_seed):
    draw = random.Random(string_seed)
    everything = assigned_characters()
    pools = [LETTERS + "ABCXYZ  .,'[]#", everything, "ΑΣςσ\u0301\u0345. '-aİ"]
    texts = [
        "".join(draw.choice(draw.choice(pools)) for _ in range(draw.randrange(40)))
        for _ in range(4000)
    ]
    found = tokenizer.encode_batch(texts)
    for text, ids in zip(texts, found, strict=True):
        assert ids == oracle.encode(text), ascii(text)


@pytest.mark.parametrize("block", [1, 7])
def test_text_without_spaces_is_cut_where_that_changes_nothing(
    tokenizer, oracle, monkeypatch, block
):
    """Not within a word, nor where lower-casing a sigma looks past a mark for letters."""
    monkeypatch.setattr(tokenization, "_BLOCK", block)
    draw = random.Random(block)
    pools = [
        "ΑΣσ\u0301\u0345.':^`·a",
        "中文。a、\u3099",
        ",;!?()[]{}<>/+=|\t\n\r\x0b\x85\u2028\u3000",
        LETTERS,
    ]
    for _ in range(2000):
        text = "".join(draw.choice(draw.choice(pools)) for _ in range(draw.randrange(60)))
        assert "".join(tokenization._blocks(text)) == text
        assert tokenizer.encode(text) == oracle.encode(text), ascii(text)
    assert len(list(tokenization._blocks("中文" * 50 + "a/b"))) > 10


def test_a_line_without_spaces_takes_little_memory(tokenizer):
    """Ideographs took a hundred times their bytes when a line was cut at once."""
    text = "中文ab/" * 60_000
    tracemalloc.start()
    ids, lengths = tokenizer.encode_flat([text])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lengths.tolist() == [300_000] and len(set(ids.tolist())) == 5
    assert most < 10 * len(text.encode())


@pytest.mark.parametrize("outside", ["", " \u03a3"])
def test_words_of_two_hundred_characters_are_the_longest(tokenizer, outside):
    tail = len(tokenizer.encode(outside))
    assert len(tokenizer.encode("a" * 200 + outside)) == 200 + tail
    assert tokenizer.encode("a" * 201 + outside)[: 1 + tail][0] == tokenizer.unk_id
    assert len(tokenizer.encode("a" * 201 + outside)) == 1 + tail
    # Accents go before the length is taken.
    assert len(tokenizer.encode("a\u0301" * 200 + outside)) == 200 + tail


def pieces(tokenizer, ids):
    return [tokenizer.pieces[number] for number in ids]


def test_examples_written_out(tokenizer):
    def cut(text):
        return pieces(tokenizer, tokenizer.encode(text))

    assert cut("UNaffable") == ["un", "##aff", "##able"]  # the example of the original's docstring
    assert cut("Naïve") == ["naive"]
    assert cut("the中文") == ["the", "中", "文"]
    assert cut("™ ﬁ ½") == ["™", "ﬁ", "½"]  # compatibility characters are not folded
    assert cut("ΟΣ ΣΟ") == ["ο", "##ς", "σ", "##ο"]  # the final sigma
    assert cut("") == cut(" \t\n\u00a0") == []
    assert " ".join(cut("the [MASK].x [SEP]")) == "the [ mask ] . x [ s ##e ##p ]"
    assert cut("a \ud800 b") == ["a", "[UNK]", "b"]  # half of a surrogate pair
    # `_is_control` of google-research/bert's last version names the categories Cc and Cf alone.
    assert cut("\ue000") == ["\ue000"] and cut("a\ue000") == ["a", "##\ue000"]
    assert cut("a\ue001") == ["[UNK]"] and cut("a\x00b\u200dc") == cut("abc")
    words = tokenizer.encode_batch(["UNaffable", "\u200d", "x.", "the"])
    cut_words = [["un", "##aff", "##able"], [], ["x", "."], ["the"]]
    assert [pieces(tokenizer, ids) for ids in words] == cut_words


def test_released_vocabulary_has_its_published_ids(shared_data):
    tokenizer = Vocabulary.open(shared_data / "bert" / "vocab.txt")
    assert tokenizer.size == 30522
    special = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(tokenizer, f"{name}_id") for name in special] == [0, 100, 101, 102, 103]
    assert tokenizer.encode("Hello, world!") == [7592, 1010, 2088, 999]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*SPECIAL_TOKENS, "a", "b", "a"], r"line 8: found the piece 'a' of line 6 again"),
        ([*SPECIAL_TOKENS, "a", "", "b"], r"line 7: found a blank line"),
        ([*SPECIAL_TOKENS[:4], "a"], r"line 5: the file ends without the piece \[MASK\]"),
    ],
)
def test_bad_vocabularies_are_refused_with_file_and_line(tmp_path, lines, message):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=message) as error:
        Vocabulary.open(path)
    assert str(path) in str(error.value)


def test_the_line_separator_in_googles_chinese_vocabulary_is_a_piece(tmp_path):
    """The original reads lines and strips them, so later ids count it, and no text becomes it."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, "a", "\u2028", "b"]) + "\n", encoding="utf-8")
    original = tmp_path / "tokenizer.json"
    assert Vocabulary.open(path).encode("a\u2028b\u2028 \u2028a") == [5, 7, 5]
    # The library strips it, as the original does; transformers saves that.
    import transformers

    transformers.BertTokenizer(vocab=str(path)).save_pretrained(tmp_path)
    assert json.loads(original.read_text())["model"]["vocab"][""] == 6
    assert Vocabulary.open(path).encode("b\u2028a") == [7, 5]
    path.unlink()
    assert Vocabulary.open(path).encode("b\u2028a") == [7, 5]


def test_missing_and_empty_vocabularies_are_refused(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")  # is read for vocab.txt alone
    with pytest.raises(UserError, match="absent.txt"):
        Vocabulary.open(tmp_path / "absent.txt")
    empty = tmp_path / "empty.txt"
    empty.write_bytes(b"")
    with pytest.raises(UserError, match="empty.txt"):
        Vocabulary.open(empty)


def test_ids_stay_the_same_when_the_memory_of_chunks_is_emptied(tokenizer, oracle, monkeypatch):
    monkeypatch.setattr(tokenization, "_MOST_CHUNKS_REMEMBERED", 3)
    texts = ["a b", "c d e f a b", "a b", "x" * 150 + " y", "g h"]
    for _ in range(2):
        assert tokenizer.encode_batch(texts) == [oracle.encode(text) for text in texts]
        assert [tokenizer.encode(text) for text in texts] == [oracle.encode(text) for text in texts]


def test_text_without_spaces_does_not_fill_the_memory(vocabulary_path, oracle, monkeypatch):
    """Its words differ all the time, though no chunk is remembered."""
    monkeypatch.setattr(tokenization, "_MOST_CHUNKS_REMEMBERED", 300)
    vocabulary = Vocabulary.open(vocabulary_path)
    word_piece = WordPiece({p: n for n, p in enumerate(vocabulary.pieces)}, lower_case=True)
    for number in range(40):
        text = "/".join(f"word{number * 100 + place}" for place in range(100))
        assert word_piece.encode_flat([text])[0].tolist() == oracle.encode(text)
    assert len(word_piece._words) <= 300 + 100 + 1
    word_piece.encode_flat(["a" * 100, "b" * 101])
    assert set(word_piece._chunks) == {"a" * 100}
