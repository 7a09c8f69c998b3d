"""A fine-tuned model as a TensorFlow SavedModel: texts in, predictions out.

Tokenisation is in the graph (`bert/graph_tokenization.py`) and the vocabulary is an asset, so TensorFlow and
tensorflow-text serve it without this package. Signatures, each for a batch of UTF-8 strings:

    texts, serving_default   text
    pairs                    text, text_pair

Answers: `logits` float32 [batch, outputs], and of a classifier `probabilities` float32 [batch, classes] and
`prediction` [batch], the label (int64, its number, where labels have no names); of several labels at
once `probabilities` alone; of a regression `prediction` float32 [batch].
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.bert.checkpoint.checkpoint import PROVENANCE, Checkpoint, read_checkpoint
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.checkpoint.tensorflow_format import VOCABULARY
from multiberts.bert.tokenization import CLS, SEP, Tokenizer
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, replaced

if TYPE_CHECKING:
    import tensorflow as tf

SAVED_MODEL = "saved_model"
_CLASSIFICATION, _REGRESSION, _MULTI_LABEL = KINDS = (
    "classification",
    "regression",
    "multi_label_classification",
)


def export_saved_model(
    source: PathLike, target: PathLike, *, vocabulary: PathLike | None = None
) -> Path:
    """Writes a fine-tuned classifier or regression as a SavedModel, whole or not at all.

    Args:
      source: directory of the checkpoint, such as `model` of a run with `finetune.keep`.
      target: directory to make; it must not exist.
      vocabulary: `vocab.txt`, where the source has none.

    Returns:
      The directory.

    Raises:
      UserError: the checkpoint is not of such a model, the directory exists, Keras computes with another
        library, or TensorFlow or tensorflow-text is missing; nothing has been written.
    """
    directory = Path(target)
    if directory.exists():
        raise UserError(f"{directory} exists already; choose another TARGET, or remove it")
    checkpoint = read_checkpoint(source, need_vocabulary=vocabulary is None)
    record = checkpoint.provenance.get(FINE_TUNED)
    kind = record["head"]["kind"] if record else None
    if record is None or kind not in KINDS:
        found = f"a model for {kind}" if record else "not a fine-tuned model"
        raise UserError(
            f"{source} is {found}, but a SavedModel takes texts, expected one of {', '.join(KINDS)}; use "
            "`multiberts predict`, or convert it to hugging_face"
        )
    _check_libraries()
    import tensorflow as tf

    tokenizer = Tokenizer(vocabulary or checkpoint.vocabulary_path)
    with replaced(directory) as temporary, tempfile.TemporaryDirectory() as folder:
        # One piece per line and nothing else, whatever the line ends of the given file.
        asset = Path(folder, VOCABULARY)
        asset.write_text("".join(f"{piece}\n" for piece in tokenizer.vocabulary), encoding="utf-8")
        model, signatures = _model(checkpoint, record, tokenizer, str(asset))
        tf.saved_model.save(model, str(temporary), signatures=signatures)
        described = Path(source, PROVENANCE)
        if described.is_file():
            extra = temporary / "assets.extra"
            extra.mkdir()
            (extra / PROVENANCE).write_bytes(described.read_bytes())
    return directory


def _check_libraries() -> None:
    try:
        import tensorflow_text  # noqa: F401
    except ImportError as error:
        raise UserError(
            "a SavedModel needs TensorFlow and tensorflow-text, which tokenises in the graph, and one is not "
            "installed; install requirements.txt"
        ) from error
    import keras

    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"a SavedModel is of TensorFlow, but Keras computes with {keras.backend.backend()}; set "
            "MULTIBERTS_ENGINE=tensorflow"
        )


def _model(
    checkpoint: Checkpoint, record: Mapping[str, Any], tokenizer: Tokenizer, asset: str
) -> tuple[tf.Module, dict[str, Callable[..., Any]]]:
    """Returns what is saved: the module that holds variables and vocabulary, and its signatures."""
    import tensorflow as tf
    import tensorflow_text as tf_text

    from multiberts.bert.graph_tokenization import GraphTokenizer
    from multiberts.bert.model.encoder import encode, pool
    from multiberts.bert.model.heads import classification_logits

    kind, labels = record["head"]["kind"], record["head"]["labels"]
    config = checkpoint.config
    length = min(record["sequence_length"], config.max_position_embeddings)
    kept = {**checkpoint.parameters, **checkpoint.head}
    model = tf.Module()
    model.tokenizer = GraphTokenizer(asset)
    model.weights = {
        name: tf.Variable(values, trainable=False, name=name)
        for name, values in kept.items()
        if not name.startswith("cls/")
    }

    def answer(*texts: tf.Tensor) -> dict[str, tf.Tensor]:
        segments = _shortened([model.tokenizer(each) for each in texts], length - 1 - len(texts))
        ids, segment_ids = tf_text.combine_segments(
            segments, tokenizer.id_of(CLS), tokenizer.id_of(SEP)
        )
        input_mask = tf.ones_like(ids).to_tensor()
        sequence = encode(
            model.weights, config, ids.to_tensor(), input_mask, segment_ids.to_tensor(),
            first_token_only=True,
        )  # fmt: skip
        logits = classification_logits(model.weights, pool(model.weights, sequence))
        if kind == _REGRESSION:
            return {"logits": logits, "prediction": logits[:, 0]}
        if kind == _MULTI_LABEL:
            return {"logits": logits, "probabilities": tf.sigmoid(logits)}
        best = tf.argmax(logits, axis=-1)
        prediction = best if labels is None else tf.gather(tf.constant(list(labels)), best)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "prediction": prediction,
        }

    def signature(*names: str) -> Callable[..., Any]:
        specs = [tf.TensorSpec([None], tf.string, name=name) for name in names]
        found: Callable[..., Any] = tf.function(answer, input_signature=specs, autograph=False)
        return found

    model.texts, model.pairs = signature("text"), signature("text", "text_pair")
    texts, pairs = model.texts, model.pairs
    return model, {"serving_default": texts, "texts": texts, "pairs": pairs}


def _shortened(segments: list[tf.RaggedTensor], most: int) -> list[tf.RaggedTensor]:
    """Returns segments with at most so many tokens together; `finetune/features.py` cuts in the same way.

    Tokens are dropped at the end of the longer one; of two equally long ones from the second.

    Args:
      segments: one or two, int32 [batch, (pieces)].
      most: number of tokens.
    """
    import tensorflow as tf

    if len(segments) == 1:
        return [segments[0][:, :most]]
    first, second = (segment.row_lengths() for segment in segments)
    excess = tf.maximum(first + second - most, 0)
    cut = tf.minimum(excess, abs(first - second))
    rest = excess - cut
    cut_of_first = tf.where(first > second, cut, tf.zeros_like(cut))
    kept = (
        first - cut_of_first - rest // 2,
        second - (cut - cut_of_first) - (rest + 1) // 2,
    )
    return [
        tf.ragged.boolean_mask(
            segment, tf.ragged.range(segment.row_lengths()) < tf.expand_dims(length, 1)
        )
        for segment, length in zip(segments, kept, strict=True)
    ]
