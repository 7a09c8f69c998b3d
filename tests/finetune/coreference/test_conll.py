from __future__ import annotations

import collections
from pathlib import Path

import pytest

from multiberts.finetune.coreference.conll import Mention, conll_files, read_conll
from multiberts.runs.errors import UserError

HEAD, END = "#begin document (d); part 000\n", "#end document\n"


def line(number: int, word: str, brackets: str = "-") -> str:
    return f"d\t0\t{number}\t{word}\t-\t{brackets}\n"


def test_nested_mentions_and_sentences(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    words = [("the", "(2|(7"), ("king", "7)"), ("'s", "-"), ("cook", "2)")]
    first = "".join(line(number, *word) for number, word in enumerate(words))
    path.write_text(HEAD + first + "\n" + line(0, "he", "(7)|(9)") + END)
    (document,) = read_conll(path)
    assert document.name == "d/000"
    assert document.sentences == [["the", "king", "'s", "cook"], ["he"]]
    places = [(0, 1, "7"), (0, 3, "2"), (4, 4, "7"), (4, 4, "9")]
    assert document.mentions == [Mention(*place) for place in places]
    # An entity may hold a mention of itself.
    path.write_text(HEAD + line(0, "w", "(1") + line(1, "x", "(1)") + line(2, "y", "1)") + END)
    assert read_conll(path)[0].mentions == [Mention(0, 2, "1"), Mention(1, 1, "1")]


ONTONOTES = """\
#begin document (bc/x/00/x_0001); part 000
bc/x/00/x_0001   0   0   -LRB-   -LRB-  (TOP(S*   -   -   -   Ann#1   *   -
bc/x/00/x_0001   0   1   His     PRP$   (NP*      -   -   -   Ann#1   *   (12|(3)
bc/x/00/x_0001   0   2   cook    NN     *         -   -   -   Ann#1   *   12)
bc/x/00/x_0001   0   3   /.      .      *))       -   -   -   Ann#1   *   -

#end document
#begin document (bc/x/00/x_0001); part 001
bc/x/00/x_0001   1   0   He      PRP    (TOP*)    -   -   -   Bob     *   (3)

#end document
"""


def test_the_columns_of_ontonotes(tmp_path: Path) -> None:
    """Parts are documents: entity 3 of one is not entity 3 of the other. Brackets are brackets."""
    path = tmp_path / "a.v4_gold_conll"
    path.write_text(ONTONOTES)
    first, second = read_conll(path)
    assert (first.name, second.name) == ("bc/x/00/x_0001/000", "bc/x/00/x_0001/001")
    assert first.sentences == [["(", "His", "cook", "."]]
    assert first.mentions == [Mention(1, 1, "3"), Mention(1, 2, "12")]
    assert second.mentions == [Mention(0, 0, "3")]


def test_folders_are_searched_for_gold_files_first(tmp_path: Path) -> None:
    names = ["b/2.v4_gold_conll.gz", "a/x/1.v4_gold_conll", "a/x/1.v4_auto_conll", "c/3.conll"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(ONTONOTES)
    assert conll_files(tmp_path) == [tmp_path / names[1], tmp_path / names[0]]
    (tmp_path / names[0]).unlink()
    (tmp_path / names[1]).unlink()
    assert conll_files(tmp_path) == [tmp_path / names[2]]
    assert conll_files(tmp_path / "c") == [tmp_path / names[3]]
    assert conll_files(tmp_path / "a/x/1.v4_auto_conll") == [tmp_path / names[2]]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty holds none of \*\.v4_gold_conll"):
        conll_files(tmp_path / "empty")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(0, "word"), "line 1: found a word outside a document"),
        (HEAD + line(0, "word"), "line 1: document 'd/000' has no `#end document`"),
        (HEAD + "\n" + line(0, "w", "(3") + END, "line 3: the mention of entity 3"),
        (HEAD + line(0, "w", "3)") + END, "line 2: '3)' closes a mention of entity 3"),
        (HEAD + line(0, "w", "3") + END, "line 2: found '3' in the coreference column"),
        (HEAD + line(0, "w", "((3)") + END, "line 2: found '((3)'"),
        (HEAD + "d\t0\tw\n" + END, "line 2: found 3 columns, expected at least 5"),
        (HEAD + END + HEAD + END, "line 3: document 'd/000' appears a sec"),
        (HEAD + HEAD, "line 2: found '#begin document (d); part 000', expected"),
        (END, "line 1: found the end of a document that did not begin"),
        ("# a comment\n", "holds no document"),
    ],
)
def test_malformed_files_are_refused_with_their_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "a.conll"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_conll(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("split", "counts"),
    [
        # Documents, sentences, words, mentions, entities.
        ("train", (177, 10224, 177410, 23320, 5311)),
        ("dev", (30, 1575, 28119, 3818, 857)),
        ("test", (30, 1464, 28397, 3581, 858)),
        ("test2", (25, 1327, 17637, 1889, 451)),
    ],
)
def test_ontogum_has_its_published_counts(
    shared_data: Path, split: str, counts: tuple[int, ...]
) -> None:
    found = read_conll(shared_data / f"coref/ontogum/ontogum_v11.1.{split}.v4_gold_conll.gz")
    sentences = [sentence for document in found for sentence in document.sentences]
    mentions = [(document.name, m.entity) for document in found for m in document.mentions]
    numbers = len(found), len(sentences), sum(map(len, sentences)), len(mentions), len({*mentions})
    assert numbers == counts


def test_litbank_has_its_published_counts(shared_data: Path) -> None:
    """Mentions and entities, among them those of one mention, as the data's description has them."""
    path = shared_data / "coref/litbank/litbank_100.conll.gz"
    found = read_conll(path)
    assert len(found) == 100
    assert sum(len(s) for document in found for s in document.sentences) == 210532
    assert sum(len(document.mentions) for document in found) == 29103
    sizes = [collections.Counter(m.entity for m in document.mentions) for document in found]
    assert sum(map(len, sizes)) == 7927
    assert sum(size == 1 for counter in sizes for size in counter.values()) == 5763
