"""A vocabulary's files: its pieces, the case of its text, and tokenisers that are not BERT's."""

import json

import pytest
import tokenizers

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.runs.errors import UserError

pytestmark = pytest.mark.seconds


def test_a_vocabulary_with_capitals_is_one_of_a_cased_model(tmp_path):
    path = tmp_path / "vocab.txt"
    lower = [*SPECIAL_TOKENS, "[unused0]", "the", "##s", "ß", "ℝ", *map(str, range(190))]
    path.write_text("\n".join([*lower, "NASA"]))
    assert Vocabulary.open(path).lower_case  # one in two hundred is a slip, not a case
    path.write_text("\n".join([*lower, "NASA", "The", "##S"]))
    assert not Vocabulary.open(path).lower_case
    for value in (True, False):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": value}))
        assert Vocabulary.open(path).lower_case is value
    for odd in (
        {"do_lower_case": False, "strip_accents": True},
        {"strip_accents": False},
        {"tokenize_chinese_chars": False},
    ):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(odd))
        with pytest.raises(UserError, match="as the original BERT does; take another checkpoint"):
            Vocabulary.open(path)


TEXTS = [
    "The CATS, seen at naïve Café (1999)!", "Δοκιμή ΤΗΣ γλώσσας", "Съешь ЕЩЁ этих булок", "שלום עולם",
    "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดีชาวโลก", "日本語のテキスト、中文。", "안녕하세요 세계",
    "ﬁne ½ ™ 😀 x²",
]  # fmt: skip


def _saved(folder, **settings):
    """Saves a tokeniser as transformers does, with its vocabulary."""
    transformers = pytest.importorskip("transformers")
    path = folder / "vocab.txt"
    letters = sorted({*"".join(TEXTS), *"".join(TEXTS).lower()} - {" "})
    path.write_text(
        "".join(f"{piece}\n" for piece in [*SPECIAL_TOKENS, *letters, *map("##{}".format, letters)])
    )
    transformers.BertTokenizer(str(path), **settings).save_pretrained(folder)
    return transformers


@pytest.mark.parametrize("lower_case", [True, False])
@pytest.mark.parametrize("kind", ["AutoTokenizer", "PreTrainedTokenizerFast"])
def test_ids_are_those_of_a_tokenizer_that_transformers_saved(tmp_path, lower_case, kind):
    transformers = _saved(tmp_path, do_lower_case=lower_case)
    if kind == "PreTrainedTokenizerFast":  # which names no case, and TokenizersBackend as its class
        path = str(tmp_path / "tokenizer.json")
        transformers.PreTrainedTokenizerFast(tokenizer_file=path).save_pretrained(tmp_path)
    theirs = getattr(transformers, kind).from_pretrained(tmp_path)
    ours = Vocabulary.open(tmp_path / "vocab.txt")
    assert ours.lower_case is lower_case
    # The library lower-cases a final sigma as any other, the original does not.
    texts = [text for text in TEXTS if not (lower_case and "Σ" in text)]
    assert ours.encode_batch(texts) == [
        theirs(t, add_special_tokens=False)["input_ids"] for t in texts
    ]


def test_a_tokenizer_file_decides_the_case(tmp_path, capsys):
    _saved(tmp_path, do_lower_case=False)
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ours = Vocabulary.open(tmp_path / "vocab.txt")
    assert ours.encode("The CATS") == theirs.encode("The CATS", add_special_tokens=False).ids
    assert (
        "tokenizer.json decides, with lowercase false, though do_lower_case is true"
        in capsys.readouterr().err
    )


def _changed(part, **fields):
    def change(folder):
        path = folder / "tokenizer.json"
        values = json.loads(path.read_text())
        values[part] |= fields
        path.write_text(json.dumps(values))

    return change


def _added(folder):
    path = folder / "tokenizer.json"
    values = json.loads(path.read_text())
    values["added_tokens"].append({"id": 7, "content": "[E1]", "special": True})
    path.write_text(json.dumps(values))


JAPANESE = {"tokenizer_class": "BertJapaneseTokenizer"}
MECAB = {"word_tokenizer_type": "mecab", "subword_tokenizer_type": "character"}
# The file, its change or its only content where it is the only one, and the line that refuses it.
OTHERS = [
    ("tokenizer.json", _changed("normalizer", strip_accents=False),
     "normalizer.strip_accents is false, expected null or true"),
    ("tokenizer.json", _changed("normalizer", type="Sequence", normalizers=[{"type": "NFKC"}]),
     'normalizer.type is "Sequence", expected "BertNormalizer"'),
    ("tokenizer.json", _changed("normalizer", handle_chinese_chars=False),
     "normalizer.handle_chinese_chars is false, expected true"),
    ("tokenizer.json", _changed("pre_tokenizer", type="Whitespace"), 'pre_tokenizer.type is "Whitespace"'),
    ("tokenizer.json", _changed("model", type="BPE"), 'model.type is "BPE", expected "WordPiece"'),
    ("tokenizer.json", _changed("model", continuing_subword_prefix="@@"),
     'model.continuing_subword_prefix is "@@"'),
    ("tokenizer.json", _changed("model", max_input_chars_per_word=50),
     "model.max_input_chars_per_word is 50, expected 200 or 100"),
    ("tokenizer.json", _added, r"added_tokens has \['\[E1\]'\], expected none but \[PAD\]"),
    ("tokenizer.json", _changed("model", vocab={"[PAD]": 5}),
     r"the piece '\[PAD\]' has the id 5, and 0 in .*vocab.txt"),
    ("tokenizer_config.json", JAPANESE, 'tokenizer_class is "BertJapaneseTokenizer"'),
    ("tokenizer_config.json", MECAB, 'word_tokenizer_type is "mecab", expected null'),
    ("config.json", JAPANESE, 'tokenizer_class is "BertJapaneseTokenizer"'),
    ("tokenizer_config.json", {"extra_special_tokens": ["[E1]"]}, r"extra_special_tokens has \['\[E1\]'\]"),
    ("special_tokens_map.json", {"cls_token": {"content": "<s>"}}, r"cls_token has \['<s>'\]"),
    ("added_tokens.json", {"[E1]": 7}, r"added_tokens has \['\[E1\]'\]"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "change", "message"), OTHERS)
def test_a_tokeniser_that_is_not_berts_is_refused(tmp_path, file, change, message):
    _saved(tmp_path)
    Vocabulary.open(tmp_path / "vocab.txt")
    if isinstance(change, dict):
        for path in tmp_path.glob("*.json"):
            path.unlink()
        (tmp_path / file).write_text(json.dumps(change))
    else:
        change(tmp_path)
    with pytest.raises(UserError, match=f"{file}: {message}"):
        Vocabulary.open(tmp_path / "vocab.txt")


def test_vocabularies_of_another_case_differ(tmp_path):
    paths = [tmp_path / name / "vocab.txt" for name in ("cased", "uncased", "other")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("\n".join([*SPECIAL_TOKENS, "the"]))
    (paths[0].parent / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    paths[2].write_text("\n".join([*SPECIAL_TOKENS, "the", "more"]))
    cased, uncased, other = map(Vocabulary.open, paths)
    assert uncased.difference(uncased) is None
    assert "as only one of them is cased" in cased.difference(uncased)
    assert uncased.difference(other).endswith("differ")
    assert cased.overriding.name == "tokenizer_config.json" and uncased.overriding is None
    assert len({cased, uncased, other}) == 3 and Vocabulary.open(paths[0]) is cased
    (tmp_path / "copy").mkdir()
    assert cased.write(tmp_path / "copy") == ["vocab.txt", "tokenizer_config.json"]
    assert Vocabulary.open(tmp_path / "copy" / "vocab.txt") == cased


def test_a_vocabulary_in_utf_16_is_refused(tmp_path):
    """Checkpoints have its bytes, which no other program reads as a vocabulary."""
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "the"]), encoding="utf-16")
    with pytest.raises(UserError, match="UTF-16.*; convert the file to UTF-8"):
        Vocabulary.open(tmp_path / "vocab.txt")
