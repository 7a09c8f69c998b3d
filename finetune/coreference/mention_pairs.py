"""Pairs of a pronoun and another gold mention, located in windows of token ids.

Coreference is a decision per pair, as in Winogender: does this pronoun refer to that mention?

* CoNLL-2012 documents: a pronoun is a one-word mention among `PRONOUNS` (third person, of people);
  its candidates are the mentions in the same window, before and after it, except such pronouns and
  mentions around it. A window holds as many whole sentences as fit `sequence_length`. Or every two
  mentions of a window, in both orders.
* GAP: the pronoun with A, and with B, each pair in a window around both.
* Winogender: the pronoun with the occupation and with the other participant.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from multiberts.bert.randomness import generator
from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.coreference.conll import Document, Mention, read_conll
from multiberts.finetune.coreference.gap import GapExample, read_gap
from multiberts.finetune.coreference.winogender_schemas import Sentence, Span, read_winogender
from multiberts.finetune.features import SequenceFeatures, stacked_sequences
from multiberts.runs.console import progress
from multiberts.runs.errors import UserError, counted
from multiberts.runs.identity import Input, check_unchanged
from multiberts.runs.parameters import shortened

_GAP_SUFFIXES = (".tsv", ".tsv.gz")
# Word pieces of context before and after two mentions in a prediction file.
CONTEXT_PIECES = 40
PRONOUNS = frozenset(
    {
        *("he", "him", "his", "himself"),
        *("she", "her", "hers", "herself"),
        *("they", "them", "their", "theirs", "themselves", "themself"),
    }
)


@dataclasses.dataclass(frozen=True)
class MentionPairs:
    """Pairs of spans in sequences.

    Attributes:
      spans: int32 [spans, 3]: window, first and last token.
      pairs: int32 [pairs, 2]: the spans of the pronoun and of the candidate.
      labels: int32 [pairs]: 1 where both refer to the same entity; -1 where unknown.
      pair_ids: example ids [pairs].
    """

    sequences: SequenceFeatures
    spans: np.ndarray
    pairs: np.ndarray
    labels: np.ndarray
    pair_ids: list[str]


def pair_texts(
    pairs: MentionPairs, rows: np.ndarray, pieces: Sequence[str]
) -> dict[str, list[str]]:
    """Returns the mentions of some pairs and the text around them, as the model reads them.

    Args:
      rows: numbers of the pairs, int64 [rows].
      pieces: word pieces by id.

    Returns:
      `pronoun`, `mention` and `context` [rows], lower-cased as the word pieces are.
    """

    def text(window: int, first: int, last: int) -> str:
        ids = pairs.sequences.input_ids[window, first : last + 1]
        return " ".join(pieces[piece] for piece in ids).replace(" ##", "")

    texts: dict[str, list[str]] = {"pronoun": [], "mention": [], "context": []}
    for pronoun, mention in pairs.spans[pairs.pairs[rows]].tolist():
        texts["pronoun"].append(text(*pronoun))
        texts["mention"].append(text(*mention))
        window = pronoun[0]
        first = max(1, min(pronoun[1], mention[1]) - CONTEXT_PIECES)
        end = int(pairs.sequences.lengths[window]) - 2  # before [SEP]
        texts["context"].append(
            text(window, first, min(end, max(pronoun[2], mention[2]) + CONTEXT_PIECES))
        )
    return texts


class PairCollector:
    """Gathers windows, spans and pairs.

    Attributes:
      left_out: number of unusable items by kind, for messages.
    """

    def __init__(self, tokenizer: Vocabulary):
        self.tokenizer = tokenizer
        self._rows: list[list[int]] = []
        self._spans: list[tuple[int, int, int]] = []
        self._pairs: list[tuple[int, int]] = []
        self._labels: list[int] = []
        self._ids: list[str] = []
        self.left_out: Counter[str] = Counter()

    def window(self, tokens: Sequence[int]) -> int:
        """Adds a window and returns its number. Its first token has position 1, after [CLS]."""
        self._rows.append([self.tokenizer.cls_id, *tokens, self.tokenizer.sep_id])
        return len(self._rows) - 1

    def span(self, window: int, first: int, last: int) -> int:
        """Adds tokens first..last of a window, counted without [CLS], and returns the span's number."""
        self._spans.append((window, first + 1, last + 1))
        return len(self._spans) - 1

    def pair(self, pronoun: int, candidate: int, label: bool | None, identity: str) -> None:
        self._pairs.append((pronoun, candidate))
        self._labels.append(-1 if label is None else int(label))
        self._ids.append(identity)

    def collected(self) -> MentionPairs:
        return MentionPairs(
            sequences=stacked_sequences(self._rows, [len(row) for row in self._rows]),
            spans=np.array(self._spans, np.int32).reshape(-1, 3),
            pairs=np.array(self._pairs, np.int32).reshape(-1, 2),
            labels=np.array(self._labels, np.int32),
            pair_ids=self._ids,
        )


def add_conll_pairs(
    collector: PairCollector,
    documents: Sequence[Document],
    sequence_length: int,
    prefix: str,
    max_negatives: int | None = None,
    *,
    every_two_mentions: bool = False,
) -> None:
    """Pairs pronouns with mentions in documents; each word is tokenised separately.

    Args:
      prefix: start of the ids, before `<document>/<pronoun's word>-<candidate's first>-<last word>`.
      max_negatives: candidates of another entity per pronoun, drawn at random; None: all.
      every_two_mentions: whether to pair every mention with every other one, instead of pronouns.
    """
    for document in documents:
        words = [word for sentence in document.sentences for word in sentence]
        pieces = collector.tokenizer.encode_batch(words)
        for first, last in _word_windows(document, pieces, sequence_length - 2, collector):
            lengths = [len(pieces[word]) for word in range(first, last)]
            starts = np.concatenate([[0], np.cumsum(lengths)]).tolist()
            inside = _word_spans(
                mention
                for mention in document.mentions
                if first <= mention.first
                and mention.last < last
                and starts[mention.last + 1 - first] > starts[mention.first - first]
            )
            pronouns = candidates = inside
            if not every_two_mentions:
                pronouns = [span for span in inside if _is_pronoun(span, words)]
                candidates = [span for span in inside if not _is_pronoun(span, words)]
            pairs = [
                (pronoun, candidate)
                for pronoun in pronouns
                for candidate in _candidates(
                    document, pronoun, candidates, max_negatives, every_two_mentions
                )
            ]
            if not pairs:
                continue
            window = collector.window([piece for ids in pieces[first:last] for piece in ids])
            spans: dict[_WordSpan, int] = {}
            for pair in pairs:
                for span in pair:
                    if span not in spans:
                        begin, end = starts[span.first - first], starts[span.last + 1 - first]
                        spans[span] = collector.span(window, begin, end - 1)
                pronoun, candidate = pair
                address = f"{pronoun.first}-{pronoun.last}" if every_two_mentions else pronoun.first
                identity = f"{prefix}/{document.name}/{address}-{candidate.first}-{candidate.last}"
                collector.pair(spans[pronoun], spans[candidate], pronoun.means(candidate), identity)


def _word_windows(
    document: Document, pieces: Sequence[Sequence[int]], limit: int, collector: PairCollector
) -> list[tuple[int, int]]:
    """Returns the first and last + 1 word of each window: whole sentences; a longer one is split."""
    windows: list[tuple[int, int]] = []
    start = word = num_pieces = 0
    for sentence in document.sentences:
        length = sum(len(pieces[number]) for number in range(word, word + len(sentence)))
        if num_pieces and num_pieces + length > limit:
            windows.append((start, word))
            start, num_pieces = word, 0
        if length > limit:
            collector.left_out["sentences split"] += 1
            for number in range(word, word + len(sentence)):
                if num_pieces and num_pieces + len(pieces[number]) > limit:
                    windows.append((start, number))
                    start, num_pieces = number, 0
                num_pieces += len(pieces[number])
        else:
            num_pieces += length
        word += len(sentence)
    if start < word:
        windows.append((start, word))
    spanning = sum(
        not any(first <= mention.first and mention.last < last for first, last in windows)
        for mention in document.mentions
    )
    if spanning:
        collector.left_out["mentions across windows"] += spanning
    return windows


@dataclasses.dataclass(frozen=True)
class _WordSpan:
    """First and last word, and the entities mentioned there: two if a span is annotated twice."""

    first: int
    last: int
    entities: frozenset[str]

    def means(self, other: _WordSpan) -> bool:
        return not self.entities.isdisjoint(other.entities)


def _word_spans(mentions: Iterable[Mention]) -> list[_WordSpan]:
    """Returns each span once, in text order."""
    entities: dict[tuple[int, int], set[str]] = {}
    for mention in mentions:
        entities.setdefault((mention.first, mention.last), set()).add(mention.entity)
    return [_WordSpan(first, last, frozenset(names)) for (first, last), names in entities.items()]


def _is_pronoun(span: _WordSpan, words: Sequence[str]) -> bool:
    return span.first == span.last and words[span.first].lower() in PRONOUNS


def _candidates(
    document: Document,
    pronoun: _WordSpan,
    candidates: Sequence[_WordSpan],
    max_negatives: int | None,
    every_two_mentions: bool,
) -> list[_WordSpan]:
    """Returns the candidates of a pronoun, or of any mention, in text order."""
    if every_two_mentions:
        eligible = [candidate for candidate in candidates if candidate != pronoun]
        address: tuple[int, ...] = (pronoun.first, pronoun.last)
    else:
        # A pronoun is not part of the mention that it refers to.
        eligible = [
            candidate
            for candidate in candidates
            if not candidate.first <= pronoun.first <= candidate.last
        ]
        address = (pronoun.first,)
    negatives = [candidate for candidate in eligible if not pronoun.means(candidate)]
    if max_negatives is None or len(negatives) <= max_negatives:
        return eligible
    draws = generator("coreference negatives", document.name, *address)
    rows = draws.choice(len(negatives), max_negatives, replace=False)
    dropped = set(negatives) - {negatives[row] for row in rows}
    return [candidate for candidate in eligible if candidate not in dropped]


def add_gap_pairs(
    collector: PairCollector, examples: Sequence[GapExample], sequence_length: int, prefix: str
) -> None:
    """Adds the two pairs of each GAP example, and counts those that do not fit a window.

    Args:
      sequence_length: maximum tokens of a window, which is centred on pronoun and name.
      prefix: start of the ids, before `<ID>/A` and `<ID>/B`.
    """
    limit = sequence_length - 2
    for example in examples:
        mentions = [example.pronoun, *example.names]
        tokens, spans = _cut_text(collector.tokenizer, example.text, mentions)
        windows: dict[int, int] = {}  # by first token: most passages fit one window whole
        labels = example.corefers or (None, None)
        for name, span, label in zip("AB", spans[1:], labels, strict=True):
            begin, end = min(spans[0][0], span[0]), max(spans[0][1], span[1])
            if end - begin + 1 > limit or spans[0][1] < spans[0][0] or span[1] < span[0]:
                collector.left_out["GAP pairs longer than a window"] += 1
                continue
            # Centre the window, unless the passage ends.
            start = begin - (limit - (end - begin + 1)) // 2
            start = max(0, min(start, len(tokens) - limit))
            if start not in windows:
                windows[start] = collector.window(tokens[start : start + limit])
            window = windows[start]
            pronoun = collector.span(window, spans[0][0] - start, spans[0][1] - start)
            candidate = collector.span(window, span[0] - start, span[1] - start)
            collector.pair(pronoun, candidate, label, f"{prefix}/{example.identity}/{name}")


def winogender_pairs(
    sentences: Sequence[Sentence], tokenizer: Vocabulary, max_positions: int, sentences_file: Path
) -> MentionPairs:
    """Returns two pairs per sentence: first with the occupation, then with the other participant."""
    collector = PairCollector(tokenizer)
    for sentence in sentences:
        mentions = [sentence.pronoun, sentence.occupation, sentence.participant]
        tokens, spans = _cut_text(tokenizer, sentence.text, mentions)
        if len(tokens) + 2 > max_positions:
            raise UserError(
                f"{sentences_file} line {sentence.line}: the sentence has {len(tokens) + 2} tokens, but "
                f"the checkpoint has {max_positions} positions; shorten it"
            )
        window = collector.window(tokens)
        pronoun, occupation, participant = (collector.span(window, *span) for span in spans)
        identity = f"winogender/{sentence.identity}"
        collector.pair(pronoun, occupation, sentence.answer == 0, f"{identity}/occupation")
        collector.pair(pronoun, participant, sentence.answer == 1, f"{identity}/participant")
    return collector.collected()


def _cut_text(
    tokenizer: Vocabulary, text: str, mentions: Sequence[Span]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Returns the word-piece ids of a text, and the first and last token of each mention.

    The text is split at the mentions' bounds, so that no piece crosses one.
    """
    ends = sorted({0, len(text), *(end for mention in mentions for end in mention)})
    parts = tokenizer.encode_batch([text[a:b] for a, b in itertools.pairwise(ends)])
    offsets = dict(zip(ends, np.cumsum([0, *map(len, parts)]).tolist(), strict=True))
    tokens = [piece for part in parts for piece in part]
    return tokens, [(offsets[begin], offsets[end] - 1) for begin, end in mentions]


@dataclasses.dataclass(frozen=True, eq=False)
class CoreferencePairs:
    """Training and evaluation pairs; compared by identity, as a key for caches.

    Attributes:
      sets: `train`, and the evaluation sets among `dev`, `gap` and `winogender`.
      sentences: the Winogender sentences, two pairs each.
    """

    sets: dict[str, MentionPairs]
    sentences: list[Sentence]
    percent_feminine: dict[str, float]


@functools.lru_cache(maxsize=2)
def read_pairs(
    train: tuple[Input, ...],
    dev: tuple[Input, ...],
    winogender: tuple[Input, ...],
    vocabulary: Vocabulary,
    sequence_length: int,
    max_positions: int,
    max_negatives: int,
    every_two_mentions: bool,
) -> CoreferencePairs:
    """Reads all training and evaluation pairs, once per process.

    Args:
      train: GAP files (`.tsv`, `.tsv.gz`) and CoNLL-2012 files (other names) to train on; none for a
        trained model, whose GAP files need no labels.
      winogender: the release's three files, or none.
      max_positions: maximum tokens of the model's input.
      max_negatives: candidates of another entity per mention in training.
      every_two_mentions: whether to train on every two mentions; evaluation is on pronouns.
    """

    def pairs_of(
        files: Sequence[Input], prefix: str, most: int | None, every_two: bool
    ) -> MentionPairs:
        collector = PairCollector(vocabulary)
        for file in files:
            if file.where.name.endswith(_GAP_SUFFIXES):
                examples = read_gap(file.where, need_labels=bool(train))
                add_gap_pairs(collector, examples, sequence_length, prefix)
            else:
                documents = read_conll(file.where)
                add_conll_pairs(
                    collector,
                    documents,
                    sequence_length,
                    prefix,
                    most,
                    every_two_mentions=every_two,
                )
            if collector.left_out:
                counts = [
                    f"{number} {reason}" for reason, number in sorted(collector.left_out.items())
                ]
                progress(f"{file.where}: {', '.join(counts)} (sequence_length {sequence_length})")
                collector.left_out.clear()
        return collector.collected()

    sets = {}
    if train:
        sets["train"] = pairs_of(train, "train", max_negatives, every_two_mentions)
        labels = sets["train"].labels
        if len(np.unique(labels)) < 2:
            raise UserError(
                f"{train[0].where}: found {counted(len(labels), 'pair')} of a pronoun and a mention, "
                f"{labels.sum()} of them coreferent, expected some of both kinds; give documents with gold "
                "mentions of pronouns and of what they refer to, or a larger sequence_length"
            )
    for name, is_gap in (("dev", False), ("gap", True)):
        files = [file for file in dev if file.where.name.endswith(_GAP_SUFFIXES) == is_gap]
        if files:
            sets[name] = pairs_of(files, f"coreference/{name}", None, False)
            names = ", ".join(str(file.where) for file in files[:3])
            if len(files) > 3:
                names += f" and {len(files) - 3} more"
            if not sets[name].pair_ids:
                raise UserError(
                    f"{names}: found no pair of a pronoun and a mention; give other dev_files"
                )
            [(identity, count)] = Counter(sets[name].pair_ids).most_common(1)
            if count > 1:
                raise UserError(
                    f"{names}: example id {shortened(identity)} appears twice, expected each document and "
                    "example once; remove one of the files that share it"
                )
    sentences: list[Sentence] = []
    percent_feminine: dict[str, float] = {}
    if winogender:
        schemas = read_winogender(winogender[0].where.parent)
        sentences, percent_feminine = schemas.sentences, schemas.percent_feminine
        sets["winogender"] = winogender_pairs(
            sentences, vocabulary, max_positions, winogender[1].where
        )
    check_unchanged(*train, *dev, *winogender)
    return CoreferencePairs(sets, sentences, percent_feminine)
