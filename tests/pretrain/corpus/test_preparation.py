"""The prepare command makes everything a batch needs, the same on every run, or nothing at all."""

import gzip
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import multiberts.pretrain.corpus.preparation as prepare_module
from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.corpus import shards
from multiberts.pretrain.corpus.instances import InstanceTable
from multiberts.pretrain.corpus.preparation import prepare
from multiberts.pretrain.corpus.shards import SHARD_BYTES, tokens_path
from multiberts.pretrain.corpus.token_store import TokenStore
from multiberts.runs import identity
from multiberts.runs.errors import UserError
from multiberts.runs.files import sha256_of_file
from multiberts.tests.tools import warm

pytestmark = pytest.mark.seconds

OUTPUTS = (
    *("vocab.txt", "tokens.npy", "sentence_offsets.npy", "document_offsets.npy", "instances.npy"),
    "corpus.json",
)

WORDS = [
    *("he", "she", "her", "his", "nurse", "doctor", "asked", "told", "walked", "home", "again"),
    *("the", "a", "book", "house", "and", ",", "."),
]


def write_text(path, documents=60, text_seed=0):
    draws = np.random.default_rng(text_seed)
    lines = []
    for _ in range(documents):
        for _ in range(draws.integers(2, 15)):
            lines.append(" ".join(draws.choice(WORDS, draws.integers(3, 15))))
        lines.append("")
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))
    return str(path)


@pytest.fixture
def source(tmp_path):
    return write_text(tmp_path / "text.txt.gz")


PINNED = ("a230da8b3560", "44eb9a7af659", "0f7a52f58d2d", "ad4a40882e3a", "e114dc03af90")


def run_prepare(run_dir, source, *, shard_bytes=SHARD_BYTES, **changes):
    parameters = {
        "sources": [source], "source_format": "sentences", "vocabulary_size": 60,
        "sequence_length": 32, "dupe_factor": 2,
    } | changes  # fmt: skip
    with mock.patch.object(shards, "SHARD_BYTES", shard_bytes):
        prepare(run_dir=str(run_dir), **parameters)
    return json.loads((run_dir / "corpus.json").read_text())


def check_same(one, other, names=OUTPUTS):
    for name in names:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def write_vocabulary(path, *words):
    path.write_text("".join(f"{piece}\n" for piece in [*SPECIAL_TOKENS, *words]))
    return str(path)


def test_outputs_are_whole_and_described(tmp_path, source):
    run_dir = tmp_path / "corpus"
    description = run_prepare(run_dir, source)
    store, table = TokenStore(run_dir), InstanceTable(run_dir)
    tokenizer = Vocabulary.open(run_dir / "vocab.txt")
    assert description["counts"] == {
        "pieces": tokenizer.size,
        "documents": 60,
        "sentences": store.num_sentences,
        "tokens": store.num_tokens,
        "instances": len(table),
        "random_next": int(table.rows["is_random_next"].sum()),
        "short_targets": description["counts"]["short_targets"],  # tested with `describe`
    }
    assert store.num_documents == 60
    for name, digest in description["sha256"].items():
        assert sha256_of_file(run_dir / name) == digest
    assert set(description["sha256"]) == set(OUTPUTS[:-1])
    assert tokenizer.unk_id not in store.tokens


def test_a_second_run_touches_nothing_and_reads_no_large_source(tmp_path, source, monkeypatch):
    monkeypatch.setattr("multiberts.runs.directory.LARGE_INPUT_BYTES", 1)
    os.utime(source, (1e9, 1e9))
    run_dir = tmp_path / "corpus"
    run_prepare(run_dir, source)
    times = {path.name: path.stat().st_mtime_ns for path in run_dir.iterdir()}
    monkeypatch.setattr(identity, "_REMEMBERED", {})  # as in another process
    read = []
    monkeypatch.setattr(
        identity, "sha256_of_file", lambda path: read.append(str(path)) or sha256_of_file(path)
    )
    run_prepare(run_dir, source)
    assert source not in read
    assert times == {path.name: path.stat().st_mtime_ns for path in run_dir.iterdir()}
    with pytest.raises(UserError, match="instance_seed"):
        run_prepare(run_dir, source, instance_seed=1)


def test_a_given_vocabulary_is_copied_byte_for_byte(tmp_path, source):
    vocabulary = tmp_path / "given.txt"
    vocabulary.write_bytes("\r\n".join([*SPECIAL_TOKENS, *WORDS]).encode())
    run_prepare(tmp_path / "corpus", source, vocabulary=str(vocabulary))
    assert (tmp_path / "corpus" / "vocab.txt").read_bytes() == vocabulary.read_bytes()


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
def test_a_vocabulary_that_transformers_saved_gives_the_same_corpus(tmp_path, source, name):
    """Version 5 writes it into `tokenizer.json` alone."""
    transformers = pytest.importorskip("transformers")
    vocabulary = write_vocabulary(tmp_path / "given.txt", *WORDS)
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "vocab.txt").exists()
    expected = run_prepare(tmp_path / "expected", source, vocabulary=vocabulary)
    corpus = run_prepare(tmp_path / "corpus", source, vocabulary=str(tmp_path / "theirs" / name))
    assert corpus["sha256"] == expected["sha256"]


def test_no_dupe_factor_is_one_pass_with_fresh_masks(tmp_path, source):
    once = run_prepare(tmp_path / "once", source, dupe_factor=1)
    fresh = run_prepare(tmp_path / "fresh", source, dupe_factor=None)
    assert (once["fresh_masks"], fresh["fresh_masks"]) == (False, True)
    assert once["sha256"] == fresh["sha256"]


def test_counterfactual_text_differs_in_pronouns_alone(tmp_path, source):
    vocabulary = write_vocabulary(tmp_path / "words.txt", *WORDS, "him", "hers")
    plain = run_prepare(tmp_path / "plain", source, vocabulary=vocabulary)
    changes = {"vocabulary": vocabulary, "counterfactual_seed": 3}
    description = run_prepare(tmp_path / "swapped", source, **changes)
    counts = description["counts"]
    assert counts["tokens"] == plain["counts"]["tokens"]
    tokenizer = Vocabulary.open(vocabulary)
    one, two = (TokenStore(tmp_path / name).tokens for name in ("plain", "swapped"))
    pronouns = [tokenizer.encode(word)[0] for word in ("he", "she", "her", "his")]
    counterparts = [*pronouns, *tokenizer.encode("him"), *tokenizer.encode("hers")]
    assert np.isin(one[one != two], pronouns).all()
    assert np.isin(two[one != two], counterparts).all()
    total, swapped = counts["pronouns"], counts["swapped_pronouns"]
    assert total > 500
    assert abs(swapped - total / 2) < 4 * (total / 4) ** 0.5
    again = run_prepare(tmp_path / "again", source, **changes)
    assert again["sha256"] == description["sha256"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dupe_factor": 0}, "prepare.dupe_factor is 0, expected int at least 1"),
        ({"short_sequence_probability": 1.5}, "prepare.short_sequence_probability is 1.5"),
        ({"vocabulary_size": 10}, "prepare.vocabulary_size is 10, expected at least"),
        ({"source_format": ["html"]}, r"source_format is \['html'\], expected one of sentences"),
        ({"sources": []}, "prepare.sources is"),
        ({"counterfactual_names": True}, "prepare.counterfactual_seed is None, expected a number"),
        ({"sources": ["absent.txt"]}, "absent.txt does not exist"),
        ({"vocabulary": "absent.txt"}, "absent.txt does not exist"),
        ({"source_format": "wikiextractor"}, "line 1: found"),
    ],
)
def test_bad_input_is_refused_and_nothing_written(tmp_path, source, changes, message):
    with pytest.raises(UserError, match=message):
        run_prepare(tmp_path / "corpus", source, **changes)
    assert not (tmp_path / "corpus").exists()


def test_vocabularies_of_more_than_sixteen_bits_are_refused(tmp_path, source):
    vocabulary = write_vocabulary(tmp_path / "large.txt", *map(str, range(65_532)))
    with pytest.raises(UserError, match="has 65537 pieces, expected at most 65536"):
        run_prepare(tmp_path / "corpus", source, vocabulary=vocabulary)
    assert not (tmp_path / "corpus").exists()


# A command whose shards are as small as the first argument says.
def command(run_dir, source, *more, shard_bytes=SHARD_BYTES, num_shards=None):
    bindings = [
        f"prepare.run_dir = {str(run_dir)!r}",
        f"prepare.sources = [{source!r}]",
        "prepare.source_format = 'sentences'",
        "prepare.vocabulary_size = 60",
        "prepare.sequence_length = 32",
        *more,
    ]
    flags = [f"--gin_param={binding}" for binding in bindings]
    target = "multiberts.tests.pretrain.corpus.small_shards:run"
    return warm.Process(target, [shard_bytes, ["prepare", *flags], num_shards])


def test_a_killed_run_started_again_ends_in_the_same_bytes(tmp_path):
    """Killed at several moments, as only a real process can be."""
    source = write_text(tmp_path / "long.txt.gz", documents=600)
    passes = "prepare.dupe_factor = 10"
    assert command(tmp_path / "whole", source, passes).wait() == 0
    run_dir = tmp_path / "killed"
    killed = 0
    for delay in (0.0, 0.1, 0.3):
        process = command(run_dir, source, passes)
        # Kills while outputs are written: they come after the lock.
        before = (run_dir / ".lock").exists()
        while process.poll() is None and not (run_dir / ".lock").exists():
            time.sleep(0.01)
        time.sleep(delay + (0.5 if before else 0.0))
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.communicate()
        if (run_dir / "DONE").exists():
            break
    assert killed >= 1
    assert command(run_dir, source, passes).wait() == 0
    check_same(tmp_path / "whole", run_dir, (*OUTPUTS, "DONE"))
    assert not list(run_dir.glob("*.unfinished"))


@pytest.fixture
def plain(tmp_path):
    """The text as a plain file, which can be cut into pieces."""
    path = tmp_path / "plain.txt"
    path.write_bytes(gzip.decompress(Path(write_text(tmp_path / "text.txt.gz")).read_bytes()))
    return str(path)


class Killed(BaseException):
    pass


def killed_after(monkeypatch, name):
    """Makes the next `prepare` end after a step, as a kill would; later ones go on."""
    done = getattr(prepare_module, name)

    def last(*arguments, **options):
        done(*arguments, **options)
        monkeypatch.setattr(prepare_module, name, done)
        raise Killed

    monkeypatch.setattr(prepare_module, name, last)


@pytest.mark.parametrize("name", ["plain.txt", "packed.txt.gz"])
def test_a_killed_run_goes_on_wherever_the_text_and_the_run_lie(tmp_path, monkeypatch, name):
    """With another text in the old place, which a path in the plan of shards would find."""
    (tmp_path / "old").mkdir()
    write_text(tmp_path / "old" / "packed.txt.gz", documents=200)
    text = gzip.decompress((tmp_path / "old" / "packed.txt.gz").read_bytes())
    (tmp_path / "old" / "plain.txt").write_bytes(text)
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    (tmp_path / "new" / name).rename(tmp_path / "new" / f"renamed-{name}")
    options = {"shard_bytes": 2000, "num_workers": 1}
    whole = run_prepare(tmp_path / "whole", str(tmp_path / "old" / name), **options)
    monkeypatch.chdir(tmp_path / "old")
    killed_after(monkeypatch, "write_plan")
    with pytest.raises(Killed):
        run_prepare(tmp_path / "run", name, **options)
    (tmp_path / "run").rename(tmp_path / "moved")
    write_text(tmp_path / "old" / "packed.txt.gz", documents=200, text_seed=1)
    (tmp_path / "old" / "plain.txt").write_bytes(text.replace(b"nurse", b"cook"))
    resumed = run_prepare(tmp_path / "moved", str(tmp_path / "new" / f"renamed-{name}"), **options)
    assert resumed["sha256"] == whole["sha256"]


@pytest.mark.parametrize(
    "step", ["look_over_shard", "unpack_shard", "count_words_of_shard", "tokenise_shard"]
)
def test_a_source_that_is_written_while_it_is_read_makes_nothing_of_both(
    tmp_path, monkeypatch, step
):
    is_packed = step == "unpack_shard"
    source = tmp_path / f"text.txt{'.gz' * is_packed}"
    packed = [Path(write_text(tmp_path / f"{seed}.gz", text_seed=seed)) for seed in (0, 1)]
    read = Path.read_bytes if is_packed else lambda path: gzip.decompress(path.read_bytes())
    content, other = map(read, packed)
    source.write_bytes(content)
    options = {"shard_bytes": 2000, "num_workers": 1}
    whole = run_prepare(tmp_path / "whole", str(source), **options)
    made = getattr(prepare_module, step)

    def written_meanwhile(*arguments, **of_step):
        source.write_bytes(other)
        return made(*arguments, **of_step)

    monkeypatch.setattr(prepare_module, step, written_meanwhile)
    with pytest.raises(UserError, match="changed while it was read; put it back and"):
        run_prepare(tmp_path / "run", str(source), **options)
    monkeypatch.setattr(prepare_module, step, made)
    # The text is another now, for another directory; the run goes on once the one before is back.
    if (tmp_path / "run").exists():
        with pytest.raises(UserError, match=r"prepare\.sources \(there content"):
            run_prepare(tmp_path / "run", str(source), **options)
    anew = run_prepare(tmp_path / "another", str(source), **options)["sha256"]
    assert anew["tokens.npy"] != whole["sha256"]["tokens.npy"]
    source.write_bytes(content)
    assert run_prepare(tmp_path / "run", str(source), **options)["sha256"] == whole["sha256"]


def test_a_plan_of_shards_by_paths_as_earlier_versions_wrote_it_goes_on(
    tmp_path, monkeypatch, plain
):
    options = {"shard_bytes": 2000, "num_workers": 1}
    whole = run_prepare(tmp_path / "whole", plain, **options)
    killed_after(monkeypatch, "write_plan")
    with pytest.raises(Killed):
        run_prepare(tmp_path / "run", plain, **options)
    plan = tmp_path / "run" / "shards" / "plan.json"
    written = json.loads(plan.read_text())
    for _, pieces, *_ in written["shards"]:
        for piece in pieces:
            piece[0] = plain
    plan.write_text(json.dumps(written))
    assert run_prepare(tmp_path / "run", plain, **options)["sha256"] == whole["sha256"]


def test_bytes_do_not_depend_on_shards_or_workers(tmp_path, plain, monkeypatch):
    whole = run_prepare(tmp_path / "whole", plain, counterfactual_seed=1)
    small = {"shard_bytes": 400, "num_workers": 1}
    cut = run_prepare(tmp_path / "cut", plain, counterfactual_seed=1, **small)
    monkeypatch.setattr("multiberts.pretrain.corpus.instances.TOKENS_PER_TASK", 300)
    monkeypatch.setattr("multiberts.pretrain.corpus.preparation.TOKENS_PER_TASK", 300)
    small = {"shard_bytes": 3000, "num_workers": 2}
    shared = run_prepare(tmp_path / "shared", plain, counterfactual_seed=1, **small)
    assert whole == cut == shared
    for name in ("cut", "shared"):
        check_same(tmp_path / "whole", tmp_path / name)
    assert not (tmp_path / "cut" / "shards").exists()


def test_a_cluster_writes_the_same_bytes(tmp_path, plain, cluster):
    run_prepare(tmp_path / "whole", plain, counterfactual_seed=1)
    run_prepare(
        tmp_path / "cluster", plain, counterfactual_seed=1, shard_bytes=3000, scheduler=cluster
    )
    check_same(tmp_path / "whole", tmp_path / "cluster", (*OUTPUTS, "DONE"))
    with pytest.raises(UserError, match=r"absent.txt does not exist"):
        run_prepare(tmp_path / "bad", "/absent.txt", scheduler=cluster)
    with pytest.raises(UserError, match="sources is 'absent.txt', expected an absolute path"):
        run_prepare(tmp_path / "bad", "absent.txt", scheduler=cluster)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["cluster", "whole"]


def test_a_run_on_a_cluster_that_was_killed_makes_only_the_missing_shards(tmp_path, cluster):
    path = tmp_path / "long.txt"
    path.write_bytes(gzip.decompress(Path(write_text(tmp_path / "t.gz", 120)).read_bytes()))
    words = write_vocabulary(tmp_path / "words.txt", *WORDS)
    whole, run_dir = tmp_path / "whole", tmp_path / "killed"
    run_prepare(whole, str(path), vocabulary=words)
    on_cluster = (
        f"prepare.vocabulary = {words!r}",
        "prepare.dupe_factor = 2",
        f"prepare.scheduler = {cluster!r}",
    )

    killed = command(run_dir, str(path), *on_cluster, shard_bytes=1500, num_shards=5)
    assert killed.wait() == -signal.SIGKILL
    stores = run_dir.glob("shards/tokens-?????")
    before = {store.name: store.stat().st_mtime_ns for store in stores}
    process = command(run_dir, str(path), *on_cluster, shard_bytes=1500)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    joined = json.loads((tmp_path / "killed.joined.json").read_text())
    assert before.items() <= joined.items()
    assert 5 <= len(before) < len(joined)
    check_same(whole, run_dir, (*OUTPUTS, "DONE"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["killed", "whole"]


def test_only_missing_shards_are_made_again(tmp_path, plain, monkeypatch):
    run_prepare(tmp_path / "whole", plain)
    made = []
    real = prepare_module.tokenise_shard

    def tokenise(shard, **arguments):
        if not tokens_path(arguments["directory"], shard.number).exists():
            made.append(shard.number)
            if len(made) == 3:
                raise KeyboardInterrupt
        real(shard, **arguments)

    monkeypatch.setattr(prepare_module, "tokenise_shard", tokenise)
    changes = {"shard_bytes": 3000, "num_workers": 1}
    with pytest.raises(KeyboardInterrupt):
        run_prepare(tmp_path / "run", plain, **changes)
    assert made == [0, 1, 2]
    # The plan of the first attempt stands, whatever is asked for now; nothing is looked over again.
    monkeypatch.setattr(prepare_module, "look_over_shard", None)
    run_prepare(tmp_path / "run", plain, shard_bytes=500, num_workers=1)
    assert made[3] == 2
    assert len(made) == len(set(made)) + 1
    check_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """The peak of a corpus of eight times the text is the same up to a few MB."""
    peaks = []
    for factor in (1, 8):
        source = write_text(tmp_path / f"text{factor}.txt.gz", documents=2000 * factor)
        script = (
            "import resource, sys; from multiberts.pretrain.corpus.preparation import prepare; "
            f"prepare(run_dir={str(tmp_path / str(factor))!r}, sources=[{source!r}], "
            "source_format='sentences', vocabulary_size=60, sequence_length=32, dupe_factor=1); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command_line = [sys.executable, "-c", script]
        out = subprocess.run(command_line, env=environment, capture_output=True, check=True)
        peaks.append(int(out.stdout) / 1024)
    tokens = TokenStore(tmp_path / "8").num_tokens
    assert tokens > 1_000_000
    assert peaks[1] - peaks[0] < 30, peaks


def test_a_store_can_be_prepared_again(tmp_path, source):
    vocabulary = write_vocabulary(tmp_path / "words.txt", *WORDS, "him", "hers")
    first, store = str(tmp_path / "first"), {"source_format": "store"}
    whole = run_prepare(tmp_path / "first", source, vocabulary=vocabulary)
    assert run_prepare(tmp_path / "same", first, **store)["sha256"] == whole["sha256"]
    # Counterfactual data made from the store are those made from its text.
    text = run_prepare(tmp_path / "text", source, vocabulary=vocabulary, counterfactual_seed=3)
    small = {"shard_bytes": 2000, "num_workers": 1, "counterfactual_seed": 3}
    again = run_prepare(tmp_path / "store", first, **store, **small)
    assert (again["counts"], again["sha256"]) == (text["counts"], text["sha256"])
    other = write_vocabulary(tmp_path / "other.txt", *WORDS, "him", "hers", "more")
    with pytest.raises(UserError, match=r"and .*other.txt differ; stores are ids"):
        run_prepare(tmp_path / "bad", first, **store, vocabulary=other)


def test_what_is_known_of_old_runs_stays(tmp_path):
    """Bytes of a run, pinned: a change of any draw or rule would change every seed trained on them."""
    text = "\n".join(
        f"The {name} said that her {thing} was old.\nShe gave him {number} of his books."
        + ("\n" if number % 3 == 0 else "")
        for number, (name, thing) in enumerate(
            itertools.product(("nurse", "doctor", "cook"), ("hat", "house", "dog", "car"))
        )
    )
    (tmp_path / "text.txt").write_text(text)
    description = run_prepare(
        tmp_path / "corpus", str(tmp_path / "text.txt"), counterfactual_seed=0, vocabulary_size=90
    )
    assert tuple(description["sha256"][name][:12] for name in OUTPUTS[:-1]) == PINNED


def test_a_corpus_that_the_vocabulary_does_not_cover_is_refused(tmp_path, source):
    """The vocabulary lacks more than a fifth of these words: the message states share and cure."""
    given = {"vocabulary": write_vocabulary(tmp_path / "words.txt", *WORDS[:14])}
    said = r"2\d\.\d% of the tokens are \[UNK\], expected at most 20.0%.*raise prepare.max_unknown"
    with pytest.raises(UserError, match=said):
        run_prepare(tmp_path / "corpus", source, **given)
    assert not (tmp_path / "corpus").exists()
    raised = run_prepare(tmp_path / "corpus", source, **given, max_unknown_share=0.3)
    # The bound changes no byte, so it does not make another run.
    assert run_prepare(tmp_path / "corpus", source, **given) == raised
    assert "max_unknown_share" not in raised


def test_a_corpus_may_be_cased(tmp_path, source, capsys):
    """By a given vocabulary, by one that is learned, or not, where the vocabulary says so."""
    vocabulary = write_vocabulary(tmp_path / "vocab.txt", *WORDS, "Nurse", "USA")
    run_prepare(tmp_path / "given", source, vocabulary=vocabulary, max_unknown_share=1.0)
    assert not Vocabulary.open(tmp_path / "given" / "vocab.txt").lower_case
    guess = f"note: {vocabulary} holds capitals, so the model is taken for a cased one"
    assert capsys.readouterr().err.count(guess) == 1
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(UserError, match=r"prepare\.vocabulary"):  # the text would be another one
        run_prepare(tmp_path / "given", source, vocabulary=vocabulary, max_unknown_share=1.0)
    run_prepare(tmp_path / "lower", source, vocabulary=vocabulary)
    assert Vocabulary.open(tmp_path / "lower" / "vocab.txt").lower_case
    with pytest.raises(UserError, match="cased is true, but .* is of an uncased model"):
        run_prepare(tmp_path / "odd", source, vocabulary=vocabulary, cased=True)
    text = tmp_path / "text.txt"
    lines = ["The Nurse saw Zoë.", "the nurse saw zoe.", "", "The USA.", "the usa."]
    text.write_text("\n".join(lines * 20), encoding="utf-8")
    made = run_prepare(tmp_path / "learned", str(text), vocabulary_size=90, cased=True)
    tokenizer = Vocabulary.open(tmp_path / "learned" / "vocab.txt")
    words = ["The", "the", "Nurse", "nurse", "Zoë", "zoe", "USA", "usa"]
    assert {tuple(tokenizer.encode(word)) for word in words} == {
        (tokenizer.id_of(word),) for word in words
    }
    assert made["do_lower_case"] is False and made["cased"] is True


def test_sources_of_several_formats_are_one_corpus(tmp_path):
    """The same documents in three layouts, each in its own, are three times the tokens of one."""
    documents = [[f"The nurse told {n} doctors .", "She asked a book ."] for n in range(30)]
    texts = {
        "sentences": "\n\n".join("\n".join(lines) for lines in documents),
        "jsonl": "\n".join(json.dumps({"text": "\n".join(lines)}) for lines in documents),
        "wikiextractor": "\n".join(
            f'<doc id="{n}" title="">\n' + "\n".join(lines) + "\n</doc>"
            for n, lines in enumerate(documents)
        ),
    }
    for kind, text in texts.items():
        (tmp_path / kind).write_text(text)
    sources = [str(tmp_path / kind) for kind in texts]

    def made(name, sources, source_format, **changes):
        given = {"sources": sources, "source_format": source_format, "vocabulary_size": 90}
        run_prepare(tmp_path / name, "", **given, dupe_factor=1, num_workers=1, **changes)
        return tmp_path / name

    mixed = made("mixed", sources, list(texts))
    check_same(mixed, made("cut", sources, list(texts), shard_bytes=700), ["DONE"])
    store = TokenStore(mixed)
    assert store.num_documents == 90
    one, two, three = np.split(store.tokens, 3)
    assert np.array_equal(one, two)
    assert np.array_equal(one, three)
    # One format in a list is that format; as many as sources, or one.
    for source_format in (["sentences"], "sentences"):
        made("list", sources[:1], source_format)
    for formats, message in (
        (["sentences"], "source_format names 1 formats for 3 sources"),
        (["sentences", "tfds", "raw"], r"source_format is \[.*prepare datasets and files apart"),
    ):
        with pytest.raises(UserError, match=message):
            made("no", sources, formats)
    assert not (tmp_path / "no").exists()


def test_a_source_is_named_once(tmp_path, plain):
    link, copy = tmp_path / "link.txt", tmp_path / "copy.txt"
    link.symlink_to(plain)
    copy.write_bytes(Path(plain).read_bytes())
    for other, message in (
        (plain, "names .*plain.txt twice.*name each source once"),
        (link, "names .*again, after .*plain.*name each source once"),
        (tmp_path / "pl*.txt", "plain.txt twice"),
        (copy, r"plain.txt and .*copy.txt, which hold the same"),
    ):
        with pytest.raises(UserError, match=message):
            run_prepare(tmp_path / "corpus", plain, sources=[plain, str(other)])
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_packed_source_is_cut_into_shards(tmp_path, plain, workers, monkeypatch):
    """Bytes as of the plain file; other sources around it keep their places."""
    text = Path(plain).read_bytes()
    (tmp_path / "before.txt").write_bytes(b"He walked .\nShe asked .\n\n" * 40)
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(text))
    (tmp_path / "misnamed.txt").write_bytes(gzip.compress(text))
    around = [str(tmp_path / "before.txt"), "", str(tmp_path / "text.txt.gz")]
    small = {"shard_bytes": 3000, "num_workers": workers, "counterfactual_seed": 1}
    plan = []
    real = prepare_module.number_shards
    monkeypatch.setattr(
        prepare_module, "number_shards", lambda cut, counts: plan.append(cut) or real(cut, counts)
    )
    found = {}
    for name in ("plain.txt", "packed.txt.gz", "misnamed.txt"):
        around[1] = str(tmp_path / name)
        found[name] = run_prepare(tmp_path / name[:5], plain, sources=around, **small)["sha256"]
    assert found["plain.txt"] == found["packed.txt.gz"] == found["misnamed.txt"]
    one, other, _ = plan
    assert len(other) >= len(one) > 10
    assert not (tmp_path / "packe" / "shards").exists()


@pytest.mark.slow
def test_damaged_parts_of_a_killed_run_are_told(tmp_path, plain, monkeypatch):
    """Files of known forms that a later step reads, cut, stop that step with one line."""

    def stop(*arguments, **named):
        raise KeyboardInterrupt

    run_dir = tmp_path / "run"
    for name, damage, message, stopped in (
        ("plan.json", b"[[", "plan.json is not whole JSON", "count_words_of_shard"),
        ("tokens-00001/counts.json", b"nul", "counts.json is not whole", "join_token_stores"),
        ("tokens-00001/tokens.npy", b"\x93NUM", "tokens.npy is not a whole", "join_token_stores"),
    ):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(prepare_module, stopped, stop)
            run_prepare(run_dir, plain, shard_bytes=3000, num_workers=1)
        (run_dir / "shards" / name).write_bytes(damage)
        with pytest.raises(UserError, match=message):
            run_prepare(run_dir, plain, shard_bytes=3000, num_workers=1)
        shutil.rmtree(run_dir)
