"""The tasks of pairing tile the passes over a corpus."""

import numpy as np

from multiberts.pretrain.corpus.pairing import cut_into_pairing_tasks
from multiberts.pretrain.corpus.token_store import (
    DOCUMENT_OFFSETS,
    SENTENCE_OFFSETS,
    TOKENS,
    TokenStore,
)


def test_pairing_tasks_cover_every_document_in_every_pass(tmp_path, monkeypatch):
    lengths = np.random.default_rng(0).integers(1, 200, 300)
    np.save(tmp_path / TOKENS, np.zeros(lengths.sum(), np.uint16))
    np.save(tmp_path / SENTENCE_OFFSETS, np.cumsum([0, *lengths]))
    np.save(tmp_path / DOCUMENT_OFFSETS, np.arange(0, 301, 3))
    monkeypatch.setattr("multiberts.pretrain.corpus.pairing._TOKENS_A_TASK", 1000)
    tasks = cut_into_pairing_tasks(TokenStore(tmp_path), 3)
    assert len(tasks) > 60
    assert [task.number for task in tasks] == list(range(len(tasks)))
    covered = [
        (turn, document)
        for task in tasks
        for turn in range(task.first_pass, task.end_pass)
        for document in range(task.first, task.end)
    ]
    assert covered == [(turn, document) for turn in range(3) for document in range(100)]
