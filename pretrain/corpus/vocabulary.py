"""Learns a WordPiece vocabulary from text, the same one on every run.

The words are those of our tokeniser, so every piece can be met by it. Pieces are found by merging
the most frequent neighbours (Hugging Face `tokenizers`, WordPieceTrainer); the original's learner was
not published. That library numbers the letters that continue a word ("##e") in the order of a
hash table with a random seed, and breaks ties between merges by those numbers, so two runs disagree.
Here the alphabet is chosen and ordered by us and given to the trainer beforehand, which leaves it
nothing to number by chance.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from multiberts.bert.tokenization import MAX_CHARACTERS_PER_WORD, SPECIAL_TOKENS, UNK, split_words
from multiberts.runs.console import note_once
from multiberts.runs.errors import UserError

_CONTINUATION = "##"

# A pair seen once is a piece of one word.
_LEAST_PAIR_COUNT = 2

_MOST_CHUNKS_HELD = 1_000_000

# Letters as in the released vocabulary (997 of them); fewer in small vocabularies, where rare
# scripts would take the place of words.
_USUAL_CHARACTERS = 1000
_LEAST_CHARACTERS = 100
_PIECES_PER_CHARACTER = 16

# Where these make less of a text (measured: 90 % of Chinese, 97 % of Japanese, 99.93 % of Korean, 99.999 % of
# English), letters that make this share, as far as half of the vocabulary holds them.
_SHARE_OF_LETTERS = 0.9999


def count_words(sentences: Iterable[str], *, lower_case: bool = True) -> Counter[str]:
    """Counts the words of a text, normalised and cut as the tokeniser does.

    Args:
      lower_case: false for a cased model.
    """
    words: Counter[str] = Counter()
    # The tokeniser never looks across a space, so what stands between spaces is cut only once.
    chunks: Counter[str] = Counter()
    for sentence in sentences:
        chunks.update(sentence.split(" "))
        if len(chunks) > _MOST_CHUNKS_HELD:
            _add_words(words, chunks, lower_case)
            chunks.clear()
    _add_words(words, chunks, lower_case)
    return words


def _add_words(words: Counter[str], chunks: Counter[str], lower_case: bool) -> None:
    for chunk, count in chunks.items():
        for word in split_words(chunk, lower_case=lower_case):
            words[word] += count


def learn_vocabulary(word_counts: Mapping[str, int], vocabulary_size: int) -> list[str]:
    """Learns WordPiece pieces from word counts.

    Args:
      word_counts: frequency of each word, see `count_words`.
      vocabulary_size: number of pieces wanted, special tokens included.

    Returns:
      The pieces: [PAD] [UNK] [CLS] [SEP] [MASK], the letters, the letters that continue a word
      (both by code point), then merged pieces in the order they were learned. Fewer than `vocabulary_size` if
      the text has no further pair that occurs twice.
    """
    if not word_counts:
        raise UserError("the sources hold no words to learn a vocabulary from; give more text")
    letters = _letters(word_counts, vocabulary_size)
    counted_words = {
        word: count
        for word, count in word_counts.items()
        if len(word) <= MAX_CHARACTERS_PER_WORD and letters.issuperset(word)
    }
    continuing = {letter for word in counted_words for letter in word[1:]}
    alphabet = [*sorted(letters), *(_CONTINUATION + letter for letter in sorted(continuing))]
    if len(SPECIAL_TOKENS) + len(alphabet) > vocabulary_size:
        raise UserError(
            f"prepare.vocabulary_size is {vocabulary_size}, expected at least "
            f"{len(SPECIAL_TOKENS) + len(alphabet)} for the special tokens and the letters of this "
            "text; raise it"
        )
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    learner = Tokenizer(models.WordPiece(unk_token=UNK))
    # The words come ready cut, with spaces between them.
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=_LEAST_PAIR_COUNT,
        special_tokens=[*SPECIAL_TOKENS, *alphabet],
        continuing_subword_prefix=_CONTINUATION,
        show_progress=False,
    )
    learner.train_from_iterator(_repeated(counted_words), trainer)
    ids = learner.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def _letters(word_counts: Mapping[str, int], vocabulary_size: int) -> set[str]:
    """Returns the letters that occur most; of equally frequent ones the lower code point."""
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for letter in word:
            counts[letter] += count
    ranked = sorted(counts, key=lambda letter: (-counts[letter], letter))
    covered = list(itertools.accumulate(counts[letter] for letter in ranked))
    usual = min(_USUAL_CHARACTERS, max(_LEAST_CHARACTERS, vocabulary_size // _PIECES_PER_CHARACTER))
    # A tenth of the usual number lacks ten times as much: 100 letters make 99.9 % of English.
    lacking = (1 - _SHARE_OF_LETTERS) * _USUAL_CHARACTERS / usual
    if covered[:usual][-1] >= (1 - lacking) * covered[-1]:
        return set(ranked[:usual])
    continuing = {letter for word in word_counts for letter in word[1:]}
    pieces = list(itertools.accumulate(1 + (letter in continuing) for letter in ranked))
    wanted = bisect.bisect_left(covered, _SHARE_OF_LETTERS * covered[-1]) + 1
    number = max(usual, min(wanted, bisect.bisect_right(pieces, vocabulary_size // 2)))
    if number < wanted:
        note_once(
            f"{vocabulary_size:,} pieces hold {number:,} of the text's {len(ranked):,} letters, which make "
            f"{covered[number - 1] / covered[-1]:.2%} of it; prepare.vocabulary_size = "
            f"{2 * pieces[wanted - 1]} holds those of {_SHARE_OF_LETTERS:.2%}"
        )
    return set(ranked[:number])


def _repeated(word_counts: dict[str, int]) -> Iterator[str]:
    """Yields each word as often as it was counted: the trainer takes text, not counts."""
    most_at_once = 10_000
    for word in sorted(word_counts):
        count = word_counts[word]
        while count > 0:
            yield " ".join([word] * min(count, most_at_once))
            count -= most_at_once
