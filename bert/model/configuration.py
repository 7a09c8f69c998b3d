"""The sizes of a BERT model, as in the released `bert_config.json`, and the shapes of its variables."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from multiberts.runs.errors import UserError, nearest
from multiberts.runs.files import PathLike, read_json_fields
from multiberts.runs.parameters import PositiveFloat, Range, annotations_of, described, fits

_LAYER = re.compile(r"encoder[./]layer[._](\d+)[./]")

Gelu = Literal["tanh", "exact"]
# `hidden_act` by the form of GELU. The first word is Google's, whose code refuses the second.
GELUS: dict[Gelu, str] = {"tanh": "gelu", "exact": "gelu_exact"}

# The limit is far above the sizes of any BERT and of token stores; larger values are typing errors or damage.
_Size = Annotated[int, Range(least=1, most=2**16)]
_Rate = Annotated[float, Range(least=0, below=1)]

# Fields of others' configurations that change what a model computes, with the only values supported here;
# null or a missing field means the same.
REQUIRED: dict[str, Any] = {
    "add_cross_attention": False, "attention_type": "original_full", "classifier_dropout": None,
    "cross_attention_hidden_size": None, "is_decoder": False, "is_encoder_decoder": False,
    "layer_norm_eps": 1e-12, "model_type": "bert", "position_embedding_type": "absolute",
    "pruned_heads": {}, "quantization_config": None, "tie_word_embeddings": True,
}  # fmt: skip
# Fields that published configurations carry for other tools, without effect on numbers.
_WITHOUT_EFFECT = {
    "architectures", "directionality", "dtype", "gradient_checkpointing", "pad_token_id", "pooler_fc_size",
    "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type",
    "torch_dtype", "transformers_version", "use_cache",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shapes and dropout of a model; field names are those of `bert_config.json`.

    Reference: Devlin et al., 2019, section 3; google-research/bert, `modeling.BertConfig`.
    """

    vocab_size: _Size
    hidden_size: _Size = 768
    num_hidden_layers: _Size = 12
    num_attention_heads: _Size = 12
    intermediate_size: _Size = 3072
    max_position_embeddings: _Size = 512
    type_vocab_size: _Size = 2
    hidden_dropout_prob: _Rate = 0.1
    attention_probs_dropout_prob: _Rate = 0.1
    hidden_act: str = "gelu"
    initializer_range: PositiveFloat = 0.02

    def __post_init__(self) -> None:
        for name, kind in annotations_of(BertConfig).items():
            if name != "hidden_act" and not fits(value := getattr(self, name), kind):
                raise UserError(
                    f"{name} is {value!r}, expected {described(kind)}; correct the model's sizes"
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
        """Takes the fields of the model, see `own_fields`."""
        if "vocab_size" not in (fields := own_fields(values, where)):
            raise UserError(f"{where}: field 'vocab_size' is missing; add it")
        try:
            return cls(**fields)
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


def own_fields(values: Mapping[str, Any], where: str, *, strict: bool = True) -> dict[str, Any]:
    """Returns the fields of `BertConfig`; refuses values unlike `REQUIRED`, and if strict unknown fields."""
    own = {name: value for name, value in values.items() if name in BertConfig.__dataclass_fields__}
    for name, value in values.items():
        if name in REQUIRED and value not in (None, REQUIRED[name]):
            raise UserError(
                f"{where}: {name} is {value!r}, expected {REQUIRED[name]!r}, as the BERT here computes "
                "nothing else; leave it out of a new model, or take another checkpoint"
            )
        if strict and name not in own.keys() | REQUIRED.keys() | _WITHOUT_EFFECT:
            names = sorted(BertConfig.__dataclass_fields__)
            raise UserError(f"{where}: unknown field {name!r}; {nearest(name, names)}")
    return own


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
