"""Exports a fine-tuned model as a TensorFlow SavedModel that maps texts to predictions.

Tokenisation is in the graph (`bert/graph_tokenization.py`) and the vocabulary is an asset, so TensorFlow and
tensorflow-text serve it without this package. Texts are UTF-8 strings. A model's first signature is also its
`serving_default`:

    texts      text [batch]; of a model of single texts
    pairs      text, text_pair [batch]; of a model of pairs. One that does not record it has both.

Answers: `logits` float32 [batch, outputs], and of a classifier `probabilities` float32 [batch, classes] and
`prediction` [batch], the label (int64, its number, where labels have no names); of several labels at
once `probabilities` alone; of a regression `prediction` float32 [batch].
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from multiberts.bert.checkpoint.checkpoint import PROVENANCE, read_checkpoint
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.vocabulary import VOCABULARY
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, replaced

SAVED_MODEL = "saved_model"
SERVING_DEFAULT = "serving_default"
_KINDS = ("classification", "regression", "multi_label_classification")


def export_saved_model(
    source: PathLike, target: PathLike, *, vocabulary: PathLike | None = None
) -> Path:
    """Writes a fine-tuned model as a SavedModel, atomically.

    Args:
      source: directory or name of the checkpoint, such as `model` in a run with `finetune.keep`.
      target: directory to make; it must not exist.
      vocabulary: path of `vocab.txt`, if the source lacks it.

    Returns:
      The directory.
    """
    directory = Path(target)
    if directory.exists():
        raise UserError(f"{directory} exists already; choose another TARGET, or remove it")
    checkpoint = read_checkpoint(source, vocabulary=vocabulary)
    record = checkpoint.provenance.get(FINE_TUNED)
    kind = record["head"]["kind"] if record else None
    if record is None or kind not in _KINDS:
        description, cure = "not a fine-tuned model", "fine-tune it first, with --keep=last"
        if record:
            description, cure = f"a model for {kind}", "use `multiberts predict`"
        raise UserError(
            f"{checkpoint.directory} is {description}, but a SavedModel is of a model of texts or pairs of "
            f"texts, for one of {', '.join(_KINDS)}; {cure}"
        )
    try:
        import tensorflow_text  # noqa: F401
    except ImportError as error:
        raise UserError(
            "a SavedModel needs TensorFlow and tensorflow-text, which tokenises in the graph "
            f"({error}); install multiberts[tensorflow]"
        ) from error
    import keras

    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"a SavedModel is of TensorFlow, but Keras computes with {keras.backend.backend()}; set "
            "MULTIBERTS_ENGINE=tensorflow"
        )
    import tensorflow as tf

    from multiberts.bert.graph_tokenization import GraphTokenizer
    from multiberts.bert.text_graph import text_signatures

    pieces = checkpoint.vocabulary.pieces
    with replaced(directory) as temporary, tempfile.TemporaryDirectory() as folder:
        # Write one piece per line, without the line ends of the given file.
        asset = Path(folder, VOCABULARY)
        asset.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
        # The saved module has the variables and the vocabulary.
        saved = tf.Module()
        saved.tokenizer = GraphTokenizer(str(asset), lower_case=checkpoint.vocabulary.lower_case)
        saved.weights = {
            name: tf.Variable(values, trainable=False, name=name)
            for name, values in checkpoint.variables.items()
            if not name.startswith("cls/")
        }
        signatures = text_signatures(
            saved.weights,
            checkpoint.config,
            saved.tokenizer,
            pieces,
            length=min(record["sequence_length"], checkpoint.config.max_position_embeddings),
            head=record["head"],
        )
        saved.signatures_by_name = signatures
        named = {SERVING_DEFAULT: next(iter(signatures.values())), **signatures}
        tf.saved_model.save(saved, str(temporary), signatures=named)
        described = checkpoint.directory / PROVENANCE
        if described.is_file():
            extra = temporary / "assets.extra"
            extra.mkdir()
            (extra / PROVENANCE).write_bytes(described.read_bytes())
    return directory
