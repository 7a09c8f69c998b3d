"""What runs compute and keep, against published figures and an independent count."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.model.configuration import BertConfig, num_parameters
from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.launch.estimate.work import finetuning_work, pretraining_work, shape_of
from multiberts.launch.plan.graph import complete
from multiberts.launch.plan.planned_run import Output, PlannedRun

# BERT base, uncased, as the release was trained (Sellam et al., 2022).
RELEASE = {"model": {}, "pretrain_seed": 0, "num_steps": 2_000_000, "checkpoint_steps": []}


_NUMBERS = itertools.count()
LENGTH, PREDICTIONS = 48, 7
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
         "intermediate_size": 96, "max_position_embeddings": 64}  # fmt: skip
# By PyTorch, of a step on one example of that shape.
COUNTED = 8_120_448


def planned(stage: str, **given: Any) -> PlannedRun:
    """A run of its own: what is known of runs is kept by their identities."""
    identity = str(next(_NUMBERS))
    return PlannedRun(
        stage, stage, complete(stage, stage, given), (), identity, f"{stage}-{identity}"
    )


def corpus(**given: Any) -> Output:
    return Output(planned("prepare", sources=["text"], source_format="raw", **given))


def pretraining(**given: Any) -> PlannedRun:
    return planned("pretrain", **{"corpus": corpus(), **RELEASE, **given})


def finetuning(**given: Any) -> PlannedRun:
    return planned(
        "finetune", **{"checkpoint": Output(pretraining(), "checkpoints/step_0"), **given}
    )


def test_a_seed_of_the_release() -> None:
    work = pretraining_work(pretraining())
    assert work.flops / work.steps / 256 == pytest.approx(301.4e9, rel=5e-4)
    assert work.flops == pytest.approx(1.54e20, rel=5e-3)
    assert work.assumed == ()


def test_products_as_pytorch_counted_them() -> None:
    """The next test has the number from PyTorch."""
    shape = {"sequence_length": LENGTH, "max_predictions_per_sequence": PREDICTIONS}
    ours = pretraining_work(
        pretraining(model=SIZES, corpus=corpus(vocabulary_size=300), batch_size=1, **shape)
    )
    assert ours.flops / ours.steps == COUNTED


@pytest.mark.slow
def test_products_by_an_independent_count() -> None:
    """PyTorch counts the products of Hugging Face's BERT while it runs forward and backward."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from torch.utils.flop_counter import FlopCounterMode

    config = transformers.BertConfig(vocab_size=300, attn_implementation="eager", **SIZES)
    model = transformers.BertForPreTraining(config)
    with FlopCounterMode(display=False) as counter:
        states, pooled = model.bert(torch.ones((1, LENGTH), dtype=torch.long), return_dict=False)
        # The head sees masked positions only, as ours does.
        words, order = model.cls(states[:, :PREDICTIONS], pooled)
        (words.sum() + order.sum()).backward()
    assert counter.get_total_flops() == COUNTED


def test_a_continuation_counts_its_own_steps() -> None:
    start = Output(pretraining(), "checkpoints/step_2000000")
    more = pretraining_work(pretraining(initial_checkpoint=start, num_steps=50_000))
    assert more.flops == pytest.approx(pretraining_work(pretraining()).flops / 40)


def test_disk_of_a_seed_with_intermediate_checkpoints() -> None:
    """The release's 28 intermediate checkpoints and the last, 440 MB each, and two saved states."""
    steps = [*range(20_000, 200_001, 20_000), *range(300_000, 2_000_001, 100_000)]
    assert len(steps) == 28
    work = pretraining_work(pretraining(checkpoint_steps=steps))
    states = 2 * 3
    assert work.bytes == pytest.approx((28 + states) * 440.4e6, rel=1e-3)


def test_held_out_evaluation_is_a_third_of_training_on_it() -> None:
    without = pretraining(num_steps=100)
    evaluated = pretraining_work(
        pretraining(num_steps=100, evaluation_corpus="held_out", evaluate_every_steps=10)
    )
    steps = without.parameters["evaluation_batches"] * (1 + 10) / 3
    assert evaluated.flops / pretraining_work(without).flops == pytest.approx(1 + steps / 100)


def test_fine_tuning_as_the_paper_did() -> None:
    work = finetuning_work(finetuning(task="MNLI"), bytes_per_prediction=120)
    assert work.steps == int(392_702 * 3 / 32)
    # Of 128 pieces: an example's forward and backward pass is 3 x 2 x 85 million kernels x 128, plus
    # attention.
    example = 3 * (2 * 85e6 * 128 + 12 * 4 * 128**2 * 768)
    trained, predicted = 32 * work.steps, 9_815 + 9_832
    assert work.flops == pytest.approx((trained + predicted / 3) * example, rel=5e-3)
    assert work.bytes == 120 * (9_815 + 9_832)


def test_a_frozen_encoder_is_run_forward_only() -> None:
    run = finetuning(task="coreference", num_epochs=40)
    trained = finetuning_work(finetuning(task="RTE", batch_size=1, num_epochs=1), 120, (1000, 100))
    # Of training, a third is the forward pass.
    passes = 3 * 1000 + 100
    assert finetuning_work(run, 120, (1000, 100)).flops == pytest.approx(
        1100 * trained.flops / passes
    )


def test_the_number_of_examples_is_what_is_known_of_them() -> None:
    def examples(**given: Any) -> tuple[int, tuple[str, ...]]:
        work = finetuning_work(finetuning(batch_size=1, num_epochs=1, **given), 120)
        return work.steps, work.assumed

    world = planned("make_world", num_train_facts=60, num_dev_facts=7)
    assert examples(task="RTE") == (2490, ())
    assert examples(task="RTE", max_train_examples=100) == (100, ())
    assert examples(task="RTE", max_train_examples=9999) == (2490, ())
    assert examples(task="facts", data_dir=Output(world, "facts")) == (60, ())
    assert examples(task="mine", labels=["a", "b"]) == (5000, ("mine has 5,000 examples",))
    told = finetuning(task="mine", labels=["a", "b"], batch_size=1, num_epochs=1)
    assert finetuning_work(told, 120, (321, 10)).steps == 321


def test_the_vocabulary_may_be_that_of_another_corpus_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in SPECIAL_TOKENS))
    first = corpus(vocabulary_size=1000)
    of_first = corpus(vocabulary=Output(first.run, "vocab.txt"))
    of_file = corpus(vocabulary=str(tmp_path / "vocab.txt"))
    for source, size in ((first, 1000), (of_first, 1000), (of_file, 5)):
        model = {"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1}
        run = PlannedRun(
            "pretrain", str(size), pretraining(model=model, corpus=source).parameters, (), "", "a"
        )
        config = BertConfig(vocab_size=size, **model)
        assert pretraining_work(run).bytes == 4 * num_parameters(config) * (1 + 2 * 3)


def test_runs_of_one_shape_differ_in_seed_and_procedure_only() -> None:
    one = shape_of(pretraining())
    assert one == shape_of(pretraining(pretrain_seed=7, procedure="cda", num_steps=10))
    assert one != shape_of(pretraining(batch_size=64)) != shape_of(pretraining(sequence_length=128))
    rte = shape_of(finetuning(task="RTE"))
    assert rte == shape_of(finetuning(task="RTE", learning_rate=2e-5, finetune_seed=4))
    assert rte != shape_of(finetuning(task="RTE", num_epochs=4))
