"""The tokeniser's files in the Hugging Face layout: `tokenizer.json` and `tokenizer_config.json`."""

from __future__ import annotations

from pathlib import Path

from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.tokenization import (
    CLS,
    MASK,
    MAX_CHARACTERS_PER_WORD,
    PAD,
    SEP,
    SPECIAL_TOKENS,
    UNK,
)
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_json_fields, write_json_fields

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"


def write_tokenizer(directory: Path, pieces: list[str], config: BertConfig) -> None:
    """Writes both files into an existing directory; the same arguments give the same bytes.

    Args:
      directory: to write into.
      pieces: the vocabulary in the order of the ids.
      config: the model's sizes.

    Raises:
      OSError: the disk is full or the directory cannot be written.
    """
    settings = {
        "cls_token": CLS,
        "do_lower_case": True,
        "mask_token": MASK,
        "model_max_length": config.max_position_embeddings,
        "pad_token": PAD,
        "sep_token": SEP,
        "strip_accents": None,  # with lower-casing: yes
        "tokenize_chinese_chars": True,
        "tokenizer_class": "BertTokenizer",
        "unk_token": UNK,
    }
    write_json_fields(directory / TOKENIZER_CONFIG, settings)
    _save_tokenizer(directory / TOKENIZER, pieces)


def refuse_cased(directory: PathLike) -> None:
    """Refuses a cased model, which would be read without an error and fed the wrong pieces.

    Raises:
      UserError: `tokenizer_config.json` says that the model is cased.
    """
    path = Path(directory) / TOKENIZER_CONFIG
    if path.is_file() and read_json_fields(path).get("do_lower_case") is False:
        raise UserError(
            f"{path}: do_lower_case is false, so the model is cased; text is lower-cased here: take "
            "an uncased checkpoint"
        )


def vocabulary_of_tokenizer(path: PathLike) -> list[str]:
    """Reads the WordPiece vocabulary inside a `tokenizer.json`, in the order of the ids.

    Raises:
      UserError: not JSON, no WordPiece vocabulary, or ids with gaps.
    """
    model = read_json_fields(Path(path)).get("model")
    is_word_piece = isinstance(model, dict) and model.get("type", "WordPiece") == "WordPiece"
    vocabulary = model.get("vocab") if isinstance(model, dict) and is_word_piece else None
    if not isinstance(vocabulary, dict):
        raise UserError(f"{path} holds no WordPiece vocabulary; give the model's --vocabulary=FILE")
    pieces = sorted(vocabulary, key=lambda piece: vocabulary[piece])
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise UserError(f"{path}: ids have gaps; give the model's vocabulary as --vocabulary=FILE")
    return pieces


def _save_tokenizer(path: Path, pieces: list[str]) -> None:
    """Writes the same tokeniser for programs that read `tokenizer.json`."""
    from tokenizers import (
        AddedToken,
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    ids = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.WordPiece(ids, unk_token=UNK, max_input_chars_per_word=MAX_CHARACTERS_PER_WORD)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{CLS}:0 $A:0 {SEP}:0",
        pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
        special_tokens=[(CLS, ids[CLS]), (SEP, ids[SEP])],
    )
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in SPECIAL_TOKENS]
    )
    tokenizer.save(str(path))
