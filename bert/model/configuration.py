"""The sizes of a BERT model, as in the released `bert_config.json`, and the shapes of its variables."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from multiberts.runs.errors import UserError, nearest
from multiberts.runs.files import PathLike, read_json_fields

_LAYER = re.compile(r"encoder[./]layer[._](\d+)[./]")

Gelu = Literal["tanh", "exact"]
# `hidden_act` by the form of GELU. The first word is Google's, whose code refuses the second.
GELUS: dict[Gelu, str] = {"tanh": "gelu", "exact": "gelu_exact"}

# Limits far above the sizes of any BERT and of token stores; larger values are typing errors or damage.
_LARGEST_SIZE = 2**16


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shapes and dropout of a model; field names are those of `bert_config.json`.

    Reference: Devlin et al., 2019, section 3; google-research/bert, `modeling.BertConfig`.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    hidden_act: str = "gelu"
    initializer_range: float = 0.02

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if name.endswith("_prob"):
                is_good, expected = is_number and 0 <= value < 1, "a rate in [0, 1)"
            elif name == "initializer_range":
                is_good, expected = is_number and 0 < value < math.inf, "a number above 0"
            else:
                is_good = is_number and isinstance(value, int) and 1 <= value <= _LARGEST_SIZE
                expected = f"a whole number from 1 to {_LARGEST_SIZE}"
            if name != "hidden_act" and not is_good:
                raise UserError(
                    f"{name} is {value!r}, expected {expected}; correct the model's sizes"
                )
        if self.hidden_size % self.num_attention_heads:
            raise UserError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                f"{self.num_attention_heads}; choose sizes that divide"
            )
        if self.hidden_act not in GELUS.values():
            raise UserError(
                f"hidden_act is {self.hidden_act!r}, expected 'gelu' (the tanh form) or 'gelu_exact'; write "
                "the one that the weights were trained with, or take another checkpoint"
            )

    @property
    def gelu(self) -> Gelu:
        """Returns the form of GELU that the weights were trained with."""
        return "exact" if self.hidden_act == GELUS["exact"] else "tanh"

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str) -> BertConfig:
        """Takes the known fields; ignores fields of other releases, and refuses unknown ones."""
        names = sorted(field.name for field in dataclasses.fields(cls))
        # Fields that published configurations carry for other tools, without effect on BERT.
        ignored = {
            "architectures", "attention_type", "directionality", "gradient_checkpointing",
            "layer_norm_eps", "model_type", "pad_token_id", "pooler_fc_size",
            "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
            "pooler_type", "position_embedding_type", "torch_dtype", "transformers_version",
            "use_cache",
        }  # fmt: skip
        unknown = sorted(set(values) - ignored.union(names))
        if unknown:
            raise UserError(f"{where}: unknown field {unknown[0]!r}; {nearest(unknown[0], names)}")
        if "vocab_size" not in values:
            raise UserError(f"{where}: field 'vocab_size' is missing; add it")
        try:
            return cls(**{name: value for name, value in values.items() if name in names})
        except UserError as error:
            raise UserError(f"{where}: {error}") from error

    @classmethod
    def from_file(cls, path: PathLike) -> BertConfig:
        """Reads a `bert_config.json`."""
        fields = read_json_fields(path, cure="restore it from the release")
        return cls.from_mapping(fields, str(path))

    def check_two_segments(
        self, source: str, cure: str = "take a checkpoint with 2, or a task of single texts"
    ) -> None:
        """Refuses two segments if the model has one segment type: the second would be embedded as zeros.

        Args:
          source: source of the sequences, for the message.
        """
        if self.type_vocab_size < 2:
            raise UserError(
                f"{source} has two segments in a sequence, but the model has type_vocab_size 1; {cure}"
            )

    def to_json(self) -> str:
        """Returns the content of `bert_config.json`."""
        return json.dumps(dataclasses.asdict(self), indent=2, sort_keys=True) + "\n"


def parameter_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Returns names and shapes of all variables of a pre-trained model, as released."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (config.vocab_size, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
    }

    def add_layer_norm(name: str) -> None:
        shapes[f"{name}/beta"] = (hidden,)
        shapes[f"{name}/gamma"] = (hidden,)

    def add_dense(name: str, inputs: int, outputs: int) -> None:
        shapes[f"{name}/kernel"] = (inputs, outputs)
        shapes[f"{name}/bias"] = (outputs,)

    add_layer_norm("bert/embeddings/LayerNorm")
    for layer in range(config.num_hidden_layers):
        name = f"bert/encoder/layer_{layer}"
        for part in ("query", "key", "value"):
            add_dense(f"{name}/attention/self/{part}", hidden, hidden)
        add_dense(f"{name}/attention/output/dense", hidden, hidden)
        add_layer_norm(f"{name}/attention/output/LayerNorm")
        add_dense(f"{name}/intermediate/dense", hidden, inner)
        add_dense(f"{name}/output/dense", inner, hidden)
        add_layer_norm(f"{name}/output/LayerNorm")
    add_dense("bert/pooler/dense", hidden, hidden)
    add_dense("cls/predictions/transform/dense", hidden, hidden)
    add_layer_norm("cls/predictions/transform/LayerNorm")
    shapes["cls/predictions/output_bias"] = (config.vocab_size,)
    shapes["cls/seq_relationship/output_weights"] = (2, hidden)
    shapes["cls/seq_relationship/output_bias"] = (2,)
    return shapes


def check_layers(config: BertConfig, names: Iterable[str], where: PathLike) -> None:
    """Refuses variables if their number of layers differs from the configuration's.

    Args:
      names: names of the variables, as released or as in `transformers`.
      where: source of the variables, for the message.
    """
    layers = {match[1] for name in names if (match := _LAYER.search(name))}
    if len(layers) != config.num_hidden_layers:
        raise UserError(
            f"{where} holds {len(layers)} layers, but its configuration says num_hidden_layers "
            f"{config.num_hidden_layers}; it is of another model: restore the pair"
        )


def num_parameters(config: BertConfig) -> int:
    """Returns the number of floats in a checkpoint with both pre-training heads.

    Examples:
      >>> num_parameters(BertConfig(vocab_size=30522))  # BERT base, uncased
      110106428
    """
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())
