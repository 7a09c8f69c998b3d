"""Statistics of a prepared corpus agree with the recipe's facts, and with a plain count."""

import json
import re

import numpy as np
import pytest

from multiberts.bert.randomness import generator
from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.preparation import prepare
from multiberts.pretrain.corpus.token_store import TokenStore
from multiberts.pretrain.inspection.corpus_summary import describe
from multiberts.tests.tools import warm


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("described")
    draws = np.random.default_rng(0)
    lines = []
    for number in range(60):
        # A third are long: their targets can be read off.
        sentences = 900 if number % 3 == 0 else draws.integers(1, 30)
        lines += [" ".join(draws.choice(["a", "b", "he", "x"], draws.integers(4, 24)))
                  for _ in range(sentences)]  # fmt: skip
        lines.append("")
    (directory / "text.txt").write_text("\n".join(lines))
    (directory / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a", "b", "he", "she"]))
    prepare(
        run_dir=str(directory / "corpus"), sources=[str(directory / "text.txt")],
        source_format="sentences", vocabulary=str(directory / "vocab.txt"), sequence_length=512,
        dupe_factor=20, counterfactual_seed=0, max_unknown_share=0.3,
    )  # fmt: skip
    return directory / "corpus"


def test_what_is_told_is_of_the_files(corpus):
    printed = describe(run_dir=corpus)
    store, table = TokenStore(corpus), InstanceTable(corpus)
    assert "documents     60\n" in printed
    mean = store.num_tokens / store.num_sentences
    assert f"{store.num_sentences:,} (tokens: mean {mean:.1f}, longest 23)" in printed
    tokens = store.num_tokens
    assert f"{tokens:,} (per document: mean {tokens / 60:.1f}," in printed
    share = float(re.search(r"([\d.]+)% \[UNK\]", printed)[1])
    assert abs(share - 25) < 1  # x is not a piece
    # Section 2: more random next than not.
    random_next = table.rows["is_random_next"].mean()
    assert f"random next   {random_next:.1%} of" in printed and random_next > 0.5
    lengths = table.rows["a_length"].astype(int) + table.rows["b_length"] + 3
    assert f"(mean {lengths.mean():.1f}, {(lengths == 512).mean():.1%} full)" in printed
    masks = np.rint(0.15 * lengths).clip(1, 77)
    most = (masks == 77).sum()
    assert f"{masks.mean():.1f} per sequence, at most 77 (in {most:,} sequences);" in printed
    counts = json.loads((corpus / "corpus.json").read_text())["counts"]
    share = counts["swapped_pronouns"] / counts["pronouns"]
    assert f"{counts['pronouns']:,}, {share:.1%} of them swapped" in printed
    assert 0.45 < share < 0.55


def test_short_targets_are_the_draws_whatever_the_documents_are(corpus):
    """Each pass over each document draws once, also where no length would show it."""
    facts = json.loads((corpus / "corpus.json").read_text())
    passes = 60 * facts["dupe_factor"]
    drawn = [
        generator("instances", facts["instance_seed"], turn, document).random() < 0.1
        for turn in range(facts["dupe_factor"])
        for document in range(60)
    ]
    assert facts["counts"]["short_targets"] == sum(drawn)
    assert abs(sum(drawn) / passes - 0.1) < 4 * np.sqrt(0.09 / passes)
    assert f"{sum(drawn) / passes:.1%} of the {passes:,} passes" in describe(run_dir=str(corpus))


def test_command(corpus):
    done = warm.run(["show", str(corpus)])
    assert (done.returncode, done.stdout) == (0, describe(run_dir=corpus) + "\n"), done.stderr
    beside = warm.run(["show", str(corpus), "elsewhere"])
    assert beside.returncode == 2 and "is a corpus and not the only path" in beside.stderr
