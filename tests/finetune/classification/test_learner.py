from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from multiberts.finetune.batch_layout import Layout, parted_batch
from multiberts.finetune.content import FileContent
from multiberts.finetune.tasks import DataArguments, task_named


def opened(checkpoint: Path, folder: Path, sequence_length: int = 48):
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint

    read = read_checkpoint(checkpoint)
    task = task_named("pair")
    arguments = DataArguments(
        "pair", data_dir=str(folder), sequence_length=sequence_length, options=task.completed({})
    )
    data = task.family(arguments).read(read.config, FileContent.of(read.vocabulary_path))
    return read, data


def test_a_batch_in_parts_gives_the_update_of_the_whole(
    make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    """With dropout: every row keeps its bits, wherever it lies and however far it is padded."""
    read, data = opened(make_checkpoint(), pair_data)
    learner = data.learner(read, fingerprint="", finetune_seed=0, compile_step=False)
    assert learner.trainer is not None
    rows = np.arange(20, 36)
    labels = data.train.examples.labels[rows].astype(np.int32)

    def updated(layout: Layout, labels: np.ndarray) -> dict[str, np.ndarray]:
        assert learner.trainer is not None
        learner.trainer.start(learner.initial_parameters())
        inputs, order = parted_batch(data.train.features, rows, (layout, layout))
        metrics = learner.trainer.step({**inputs, "labels": labels[order]}, 1e-2, 7)
        return {**learner.trainer.parameters(), "loss": np.array(metrics["loss"])}

    whole = updated(((16, 48),), labels)
    parted = updated(((8, 24), (5, 32), (3, 48)), labels)
    start = learner.initial_parameters()
    moved = max(np.abs(whole[name] - start[name]).max() for name in start)
    assert moved > 5e-3
    for name in whole:
        np.testing.assert_allclose(parted[name], whole[name], atol=2e-5, err_msg=name)
    # The comparison sees a difference: with other labels the update is another one.
    other = updated(((16, 48),), 1 - labels)
    assert max(np.abs(other[name] - whole[name]).max() for name in start) > 1e-3


def test_the_first_token_alone_has_the_states_and_gradients_of_the_whole_sequence(
    make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    import tensorflow as tf

    from multiberts.bert.model.encoder import encode
    from multiberts.finetune.features import sequence_batch

    read, data = opened(make_checkpoint(), pair_data)
    batch = sequence_batch(data.train.features, np.arange(6))
    inputs = [batch[name] for name in ("input_ids", "input_mask", "segment_ids")]
    weights = {n: tf.constant(v) for n, v in read.parameters.items() if n.startswith("bert/")}
    key = tf.constant([3, 4], tf.uint32)

    def states_and_gradients(first_token_only: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            states = encode(weights, read.config, *inputs, key, first_token_only=first_token_only)[
                :, :1
            ]
            loss = tf.reduce_sum(tf.sin(states))
        gradients = tape.gradient(loss, weights, unconnected_gradients="zero")
        return states.numpy(), {n: tf.convert_to_tensor(g).numpy() for n, g in gradients.items()}

    states, gradients = states_and_gradients(False)
    first, first_gradients = states_and_gradients(True)
    np.testing.assert_allclose(first, states, atol=1e-5)
    for name in gradients:
        np.testing.assert_allclose(first_gradients[name], gradients[name], atol=2e-4, err_msg=name)


def test_predictions_on_training_rows_are_those_of_a_set_of_these_rows(
    make_checkpoint: Callable[..., Path], pair_data: Path
) -> None:
    """The training file given as dev gives the same scores, row by row."""
    read, data = opened(make_checkpoint(), pair_data)
    learner = data.learner(read, fingerprint="", finetune_seed=0, compile_step=False)
    assert learner.evaluate_rows is not None
    rows = np.array([5, 3, 90, 41])
    weights = learner.initial_parameters()
    found = learner.evaluate_rows(weights, rows)
    assert found.name == "held_out"
    assert list(found.example_ids) == [f"pair/train/{row}" for row in rows]

    (pair_data / "dev.tsv").write_text((pair_data / "train.tsv").read_text())
    read, data = opened(make_checkpoint(), pair_data)
    learner = data.learner(read, fingerprint="", finetune_seed=0, compile_step=False)
    (everything,) = learner.evaluate(weights)
    assert everything.scores is not None and everything.labels is not None
    np.testing.assert_allclose(found.scores, everything.scores[rows], atol=1e-5)
    assert list(found.labels) == everything.labels[rows].tolist()
