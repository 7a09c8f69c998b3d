"""Pronouns are swapped as asked, and the rule for "her" and "his" is right as often as stated."""

import itertools
import re
from collections import Counter
from typing import get_args

import numpy as np
import pytest

from multiberts.bert.tokenization import SPECIAL_TOKENS
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.corpus.counterfactual import (
    NAME_COUNTERPARTS,
    NOUN_COUNTERPARTS,
    Swapper,
    Unit,
    counterpart,
    swap_ids,
)
from multiberts.pretrain.corpus.documents import Piece, read_documents

pytestmark = pytest.mark.seconds

# Sentence and its counterpart with every pronoun swapped, written by hand before the rule was run. The
# rule's word lists were then extended with these at hand.
LABELLED = [
    # her before a noun phrase
    ("She lost her keys.", "He lost his keys."),
    ("Her mother called.", "His mother called."),
    ("The nurse finished her long shift.", "The nurse finished his long shift."),
    ("She raised her left hand.", "He raised his left hand."),
    ("It was her only child.", "It was his only child."),
    ("They praised her early novels.", "They praised his early novels."),
    ("She wrote her 'memoirs' there.", "He wrote his 'memoirs' there."),
    ("In her 1925 novel she tried it.", "In his 1925 novel he tried it."),
    ("She sold her newly built house.", "He sold his newly built house."),
    ("She did her very best.", "He did his very best."),
    ("Her second husband died.", "His second husband died."),
    ("Her Majesty arrived.", "His Majesty arrived."),
    ("She loved her lovely garden.", "He loved his lovely garden."),
    ("She kept her then-famous name.", "He kept his then-famous name."),
    ("She lost her home.", "He lost his home."),
    ("her sister's friends", "his sister's friends"),
    ("She shook her head and left.", "He shook his head and left."),
    ("She spent her life abroad.", "He spent his life abroad."),
    ("I like her more recent work.", "I like his more recent work."),
    ("She broke her wrist.", "He broke his wrist."),
    ("Her friendly advice helped.", "His friendly advice helped."),
    ("Her own room was cold.", "His own room was cold."),
    # her as an object
    ("I saw her.", "I saw him."),
    ("We told her that it was late.", "We told him that it was late."),
    ("He gave her a book.", "She gave him a book."),
    ("They met her in Paris.", "They met him in Paris."),
    ("I asked her to stay.", "I asked him to stay."),
    ("He left her, and wept.", "She left him, and wept."),
    ("Nobody believed her again.", "Nobody believed him again."),
    ("He thanked her warmly.", "She thanked him warmly."),
    ("He loved her because she listened.", "She loved him because he listened."),
    ("They offered her the job.", "They offered him the job."),
    ("Her and me, we were friends.", "Him and me, we were friends."),
    ("I know her and her brother.", "I know him and his brother."),
    ("He looked at her with pity.", "She looked at him with pity."),
    ("I gave her my word.", "I gave him my word."),
    ("It made her happy.", "It made him happy."),
    ("He saw her leave.", "She saw him leave."),
    ("He let her go.", "She let him go."),
    ("They named her Anna.", "They named him Anna."),
    ("He found her asleep.", "She found him asleep."),
    ("It took her three years.", "It took him three years."),
    ("I heard her when she sang.", "I heard him when he sang."),
    ("I told her yesterday.", "I told him yesterday."),
    ("He paid her, of course.", "She paid him, of course."),
    ("The man behind her was tall.", "The man behind him was tall."),
    ("They sent her home.", "They sent him home."),
    ('He called her "friend".', 'She called him "friend".'),
    # his before a noun phrase
    ("He lost his keys.", "She lost her keys."),
    ("His father agreed.", "Her father agreed."),
    ("He did his own work.", "She did her own work."),
    ("In his early years he travelled.", "In her early years she travelled."),
    ("A man and his dog came.", "A man and her dog came."),
    ("He put on his old brown coat.", "She put on her old brown coat."),
    ('his "plan" failed', 'her "plan" failed'),
    ("Each did his or her part.", "Each did her or his part."),
    ("His Royal Highness spoke.", "Her Royal Highness spoke."),
    ("He kept his family's house.", "She kept her family's house."),
    # his alone
    ("The book is his.", "The book is hers."),
    ("It was his, not mine.", "It was hers, not mine."),
    ("A friend of his came by.", "A friend of hers came by."),
    ("A friend of his is here.", "A friend of hers is here."),
    ("His is the better plan.", "Hers is the better plan."),
    ("The land was his by right.", "The land was hers by right."),
    ("What was his and what was not?", "What was hers and what was not?"),
    # one counterpart
    ("He saw himself.", "She saw herself."),
    ("She did it herself.", "He did it himself."),
    ("The choice was hers.", "The choice was his."),
    ("We saw him there.", "We saw her there."),
    ("He's late, and she'd know.", "She's late, and he'd know."),
    ("HE SAW HER. She saw HIM.", "SHE SAW HIM. He saw HER."),
]


# Written after the rule was finished, to be hard for it, and not used to change it.
HELD_OUT = [
    ("The doctor told her patient to rest.", "The doctor told his patient to rest."),
    ("The lawyer thanked her for coming.", "The lawyer thanked him for coming."),
    ("They elected her president.", "They elected him president."),
    ("We watched her dance all night.", "We watched him dance all night."),
    ("Her dance lasted all night.", "His dance lasted all night."),
    ("He envied her success.", "She envied his success."),
    ("Critics called her performance weak.", "Critics called his performance weak."),
    ("The crowd cheered her on.", "The crowd cheered him on."),
    ("Her always cheerful brother sang.", "His always cheerful brother sang."),
    ("She handed her coat to the maid.", "He handed his coat to the maid."),
    ("I showed her photographs of the sea.", "I showed him photographs of the sea."),
    ("The storm forced her inside.", "The storm forced him inside."),
    ("She gave her all.", "He gave his all."),
    ("Her not coming surprised us.", "His not coming surprised us."),
    ("They blamed her alone.", "They blamed him alone."),
    ("The engineer checked her design twice.", "The engineer checked his design twice."),
    ("He wished her luck.", "She wished him luck."),
    ("Her three sons emigrated.", "His three sons emigrated."),
    ("He had married her in 1902.", "She had married him in 1902."),
    ("They took her car away.", "They took his car away."),
    ("Everyone around her laughed.", "Everyone around him laughed."),
    ("His was a hard life.", "Hers was a hard life."),
    ("The victory was finally his.", "The victory was finally hers."),
    ("That idea of his failed.", "That idea of hers failed."),
    ("His once famous shop closed.", "Her once famous shop closed."),
    ("No cousin of his would lie.", "No cousin of hers would lie."),
    ("His name is on his door.", "Her name is on her door."),
    ("His and her towels hung there.", "Her and his towels hung there."),
    ("The boss gave him his pay.", "The boss gave her her pay."),
    ("He taught himself her language.", "She taught herself his language."),
]


# Written after the word lists were extended by what real text showed, and not used to change them. One
# sentence and the counterpart of each her, his, hers and him in it.
FRESH = [
    ("The committee praised her for her courage.", "him his"),
    ("Nobody had told her about the delay.", "him"),
    ("Her report was late again.", "His"),
    ("They followed her through the market.", "him"),
    ("The jury found her guilty.", "him"),
    ("We admired her garden from the road.", "his"),
    ("The letter reached her on Friday.", "him"),
    ("He asked her what she wanted.", "him"),
    ("The teacher corrected her spelling.", "his"),
    ("I have never met her before.", "him"),
    ("A stranger handed her an envelope.", "him"),
    ("Her eyes were fixed on the door.", "His"),
    ("The noise kept her awake.", "him"),
    ("The company offered her shares.", "him"),
    ("It was her turn to speak.", "his"),
    ("They considered her a genius.", "him"),
    ("The police arrested her at the border.", "him"),
    ("Her first album sold well.", "His"),
    ("He wrote to her every week.", "him"),
    ("The captain and her crew escaped.", "his"),
    ("Her being late annoyed us.", "His"),
    ("She turned her back on them.", "his"),
    ("They called her back at noon.", "him"),
    ("The rain made her shiver.", "him"),
    ("In her later life she painted.", "his"),
    ("I saw her later that day.", "him"),
    ("Doctors gave her six months.", "him"),
    ("Her will was read on Monday.", "His"),
    ("The boss promoted her twice.", "him"),
    ("He bought her flowers.", "him"),
    ("She had her hair cut.", "his"),
    ("The dog bit her hand.", "his"),
    ("The dog bit her badly.", "him"),
    ("Her once splendid house stood empty.", "His"),
    ("The editor thanked her and left.", "him"),
    ("The prize made her famous overnight.", "him"),
    ("I can hear her singing in the kitchen.", "him"),
    ("I like her singing.", "his"),
    ("The nurse brought her some soup.", "him"),
    ("Her sister, a doctor, agreed.", "His"),
    ("The council elected her mayor.", "him"),
    ("They all stared at her in silence.", "him"),
    ("The general led her troops north.", "his"),
    ("We saw her off at the station.", "him"),
    ("Her many books are read today.", "His"),
    ("The idea pleased her greatly.", "him"),
    ("A scarf hid her face.", "his"),
    ("The city named her an honorary citizen.", "him"),
    ("He had known her since childhood.", "him"),
    ("He had known her father since childhood.", "his"),
    ("No one but her could open it.", "him"),
    ("They took her prisoner.", "him"),
    ("They shot her twice.", "him"),
    ("The queen and her ministers met.", "his"),
    ("She kissed her (late) husband's picture.", "his"),
    ("He showed her how to sail.", "him"),
    ("I watched her closely.", "him"),
    ('She opened her "secret" drawer.', "his"),
    ("It took her by surprise.", "him"),
    ("Her own children never knew.", "His"),
    ("The manager fired her last week.", "him"),
    ("The manager kept her last letter.", "his"),
    ("Illness forced her to resign.", "him"),
    ("Let her speak.", "him"),
    ("Her speech moved everyone.", "His"),
    ("The court awarded her damages.", "him"),
    ("They missed her more than ever.", "him"),
    ("They missed her more famous brother.", "his"),
    ("We helped her up the stairs.", "him"),
    ("Her up-to-date notes were useful.", "His"),
    ("The author signed her new novel.", "his"),
    ("My brother married her in June.", "him"),
    ("People trusted her less after that.", "him"),
    ("I owe her money.", "him"),
    ("She lost her money.", "his"),
    ("His answer surprised us.", "Her"),
    ("This house is his.", "hers"),
    ("That dog of his barked.", "hers"),
    ("The fault was his alone.", "hers"),
    ("His alone among the plans was cheap.", "Hers"),
    ("He gave his all.", "her"),
    ("The decision is not his to make.", "hers"),
    ("He sold his old car.", "her"),
    ("We compared her work with his.", "his hers"),
    ("His and mine are alike.", "Hers"),
    ("All that was his is gone.", "hers"),
    ("He defended his then partner.", "her"),
    ("His mother-in-law called.", "Her"),
    ("He hid behind his newspaper.", "her"),
    ("A brother of his lives here.", "hers"),
    ("The bag beside his was stolen.", "hers"),
    ("In his opinion, it failed.", "her"),
    ("He was in his early twenties.", "her"),
    ("He raised his right arm.", "her"),
    ("His many friends wept.", "Her"),
    ("He took his time.", "her"),
    ("I prefer my own room to his.", "hers"),
    ("His being there helped.", "Her"),
    ("His two sons agreed.", "Her"),
    ("He and his were safe.", "hers"),
    ("Everything about his 1998 film is odd.", "her"),
    ("This pen must be his, I think.", "hers"),
    ("He lost both his parents.", "her"),
    ("Was it his?", "hers"),
    ("His later novels are dull.", "Her"),
    ("What is his is yours.", "hers"),
    ("He shook his head sadly.", "her"),
    ("Not one word of his was kept.", "hers"),
    ('He read from his "Odes to Spring".', "her"),
    ("His Excellency arrived.", "Her"),
    ("I borrowed his to finish it.", "hers"),
    ("The choice was hers.", "his"),
    ("Hers was the louder voice.", "His"),
    ("A colleague of hers resigned.", "his"),
    ("The red one is hers, I believe.", "his"),
    ("I saw him yesterday.", "her"),
    ("They gave him his hat.", "her her"),
    ("Him I never liked.", "Her"),
    ("The guard let him through.", "her"),
    ("We spoke about him and his work.", "her her"),
]


def swap_pronouns(text, *, counterfactual_seed, document, probability=0.5):
    """The new text, how many occurrences were swapped, and how many there are."""
    swapped = Swapper(counterfactual_seed, probability).swap(text, document=document)
    return swapped.text, swapped.counts["swapped_pronouns"], swapped.counts["pronouns"]


def swap_all(text):
    return swap_pronouns(text, counterfactual_seed=0, document=0, probability=1.0)[0]


AMBIGUOUS = re.compile(r"\b(?:her|his|hers|him)\b", re.IGNORECASE)


def right_and_all(labelled):
    """Of the ambiguous pronouns in sentences with known counterparts, how many come out right."""
    right = total = 0
    for text, expected in labelled:
        places = [
            number
            for number, word in enumerate(re.findall(r"\w+", text))
            if AMBIGUOUS.fullmatch(word)
        ]
        new, wanted = re.findall(r"\w+", swap_all(text)), re.findall(r"\w+", expected)
        right += sum(new[place] == wanted[place] for place in places)
        total += len(places)
    return right, total


def filled_in(text, counterparts):
    """The sentence with other pronouns as the rule has them and the ambiguous ones as labelled."""
    answers = iter(counterparts.split())
    return AMBIGUOUS.sub(lambda match: next(answers), text)


def test_rule_is_right_as_often_as_measured_on_more_than_200_cases():
    """Measured: at hand 71 of 71; held out 26 of 33; fresh 116 of 124 (94 %). Text is easier."""
    at_hand, held_out = right_and_all(LABELLED), right_and_all(HELD_OUT)
    fresh = right_and_all([(text, filled_in(text, answers)) for text, answers in FRESH])
    assert at_hand[1] + held_out[1] + fresh[1] >= 200
    assert at_hand[0] == at_hand[1], at_hand
    assert held_out[0] >= 0.78 * held_out[1], held_out
    assert fresh[0] >= 0.93 * fresh[1], fresh


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("enwiki_2015_wikiextractor_sample.txt.gz", 0.975),
        ("gutenberg_litbank25_books.txt.gz", 0.965),
    ],
)
def test_rule_puts_him_and_his_back_in_real_text(shared_data, name, least):
    """Real text labels "her" itself: where a man's text has him or his, "her" must become just that.

    Measured on all 17,752 and 37,843 places: 97.9 % of Wikipedia's and 96.9 % of the books'. The test
    looks at a sixth of the articles and at the first 300 places of each text.
    """
    right = total = 0
    for number, document in enumerate(
        read_documents([Piece(str(shared_data / "pretrain" / name), "wikiextractor")])
    ):
        if number % 6 and name.startswith("enwiki"):
            continue
        text = "\n".join(document)
        for match in itertools.islice(re.finditer(r"\b(?:him|his)\b", text), 300):
            before = text[: match.start()][-100:]
            feminine = f"{before}her{text[match.end() : match.end() + 100]}"
            here = re.compile("her").match(feminine, len(before))
            right += counterpart(feminine, here) == match[0]
            total += 1
    assert total > 2900
    assert right >= least * total, (right, total)


def test_words_that_hold_a_pronoun_stay():
    text = "The other theme: there, this, shell, helm, chisel, heritage, ushers."
    assert swap_all(text) == text


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5, 1.0])
def test_share_swapped_is_the_probability(probability):
    text = "He saw himself and she saw herself. " * 5000
    new, swapped, total = swap_pronouns(
        text, counterfactual_seed=4, document=2, probability=probability
    )
    assert total == 20_000
    sigma = (total * probability * (1 - probability)) ** 0.5
    assert abs(swapped - probability * total) <= 4 * sigma
    old_words, new_words = re.findall(r"\w+", text), re.findall(r"\w+", new)
    assert sum(a != b for a, b in zip(old_words, new_words, strict=True)) == swapped


def test_occurrences_are_swapped_independently():
    new, _, total = swap_pronouns("he " * 10_000, counterfactual_seed=4, document=2)
    swapped = [word == "she" for word in new.split()]
    agree = sum(a == b for a, b in itertools.pairwise(swapped))
    assert abs(agree - total / 2) < 4 * (total / 4) ** 0.5


def test_draws_are_addressed_by_seed_and_document():
    text = "he " * 200

    def swap(counterfactual_seed, document):
        return swap_pronouns(text, counterfactual_seed=counterfactual_seed, document=document)[0]

    assert swap(1, 1) == swap(1, 1)
    assert len({swap(1, 1), swap(2, 1), swap(1, 2)}) == 3


def test_text_without_pronouns_is_returned_as_it_is():
    assert swap_pronouns("No one.\n", counterfactual_seed=0, document=0) == ("No one.\n", 0, 0)


@pytest.mark.parametrize("pairs", [NOUN_COUNTERPARTS, NAME_COUNTERPARTS])
def test_word_lists_are_pairs(pairs):
    assert all(pairs[pairs[word]] == word != pairs[word] for word in pairs)
    assert len(pairs) >= 150


def test_nouns_are_swapped_where_asked_for():
    text = "The KING and his daughter met a waitress; kingdom, human. Mrs Oak."
    swapper = Swapper(0, probability=1.0, nouns=True)
    swapped = swapper.swap(text, document=0)
    assert swapped.text == "The QUEEN and her son met a waiter; kingdom, human. Mr Oak."
    assert swapped.counts == {"pronouns": 1, "swapped_pronouns": 1, "nouns": 4, "swapped_nouns": 4}
    assert Swapper(0, probability=1.0).swap(text, document=0).text == text.replace("his", "her")


def test_nouns_do_not_move_the_draws_of_pronouns():
    text = "He and the woman saw her father. " * 200
    alone = Swapper(3).swap(text, document=1).text
    both = Swapper(3, nouns=True).swap(text, document=1)
    pronouns = re.compile(r"\b(?:he|she|her|his|him)\b", re.IGNORECASE)
    # Save "her", whose counterpart may change with the noun, every draw is the same.
    assert pronouns.findall(alone) == pronouns.findall(both.text)
    assert abs(both.counts["swapped_nouns"] - 200) < 4 * 10


def test_a_name_is_one_name_throughout_a_document():
    text = "Mary met James. James saw Mary; Linda and john ran. " * 20
    outcomes = set()
    for document in range(40):
        swapped = Swapper(5, names=True).swap(text, document=document)
        words = swapped.text.split()[: len(text.split()) // 20]
        outcomes.add((words[0], words[2], words[5].rstrip(";")))
        assert swapped.text == (" ".join(words) + " ") * 20
        # Mary and James stand next to each other and change places together; a small john is not a name.
        assert {words[0], words[2].rstrip(".")} == {"Mary", "James"}
        assert "john ran" in swapped.text
    assert len(outcomes) == 2


def test_a_store_is_swapped_as_its_text(tmp_path):
    words = "he she him her his hers himself her ##elf saw a books . book the friend of mary james gave ##s"
    vocabulary = list(dict.fromkeys([*SPECIAL_TOKENS, *words.split()]))
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = Vocabulary.open(tmp_path / "vocab.txt")
    sentences = [
        "She saw her book.",
        "A friend of his saw himself.",
        "Mary gave her books the book.",
    ]
    swapper = Swapper(0, probability=1.0, names=True)
    ids, counts = swap_ids(
        tokenizer.encode_batch(sentences), vocabulary=tokenizer, swapper=swapper, document=0
    )
    swapped = swapper.swap("\n".join(sentences), document=0)
    assert ids == tokenizer.encode_batch(swapped.text.split("\n"))
    assert counts == swapped.counts
    # "herself" is two pieces where the masculine is one.
    assert tokenizer.encode("herself") == ids[1][-3:-1]


def test_a_long_run_of_adverbs_is_read_to_its_end():
    """No depth of the text is a depth of calls: 80 MB of stack would not do."""
    adverbs = "very newly " * 100_000
    assert swap_all(f"Her {adverbs}built house.") == f"His {adverbs}built house."
    assert swap_all(f"I saw her {adverbs}.") == f"I saw him {adverbs}."


def units_swapped(unit, documents=400):
    """Of the two words in each of six sentences, which become feminine: bool [documents, 6, 2]."""
    text = "\n".join(["The king saw that he came ."] * 6)
    swapper = Swapper(2, nouns=True, unit=unit)
    texts = [swapper.swap(text, document=document).text for document in range(documents)]
    found = [re.findall(r"\b(he|she|king|queen)\b", text) for text in texts]
    return np.isin(found, ["she", "queen"]).reshape(documents, 6, 2)


def test_one_draw_decides_for_a_pronoun_a_sentence_or_a_document():
    """About half of the units change, and within a unit all words or none."""
    swapped = {unit: units_swapped(unit) for unit in get_args(Unit)}
    for unit, draws in {"pronoun": 4800, "sentence": 2400, "document": 400}.items():
        assert abs(swapped[unit].mean() - 0.5) < 4 * (0.25 / draws) ** 0.5, unit
    words, sentences, documents = swapped.values()
    assert (sentences[:, :, 0] == sentences[:, :, 1]).all()
    assert (documents == documents[:, :1, :1]).all()
    # Neither do sentences of a document go together, nor the words of a sentence.
    assert 0.4 < (sentences[:, 0, 0] == sentences[:, 1, 0]).mean() < 0.6
    assert 0.4 < (words[:, :, 0] == words[:, :, 1]).mean() < 0.6


def test_names_go_with_their_document():
    """One draw per pair of names, or the document's own draw; never one per sentence."""
    text = "\n".join(["Mary saw that he came ."] * 6)
    for unit in get_args(Unit):
        swapper = Swapper(2, names=True, unit=unit)
        for document in range(40):
            found = re.findall(r"Mary|James|\bs?he\b", swapper.swap(text, document=document).text)
            assert len(set(found[::2])) == 1
            if unit == "document":
                assert set(found) in ({"Mary", "he"}, {"James", "she"})


def test_copies_follow_the_documents_they_are_made_from():
    original, swapped = ["He came ."], ["She came ."]
    counts = Counter()
    assert list(Swapper(0).variants(original, swapped, counts)) == [swapped]
    copying = Swapper(0, copies=True)
    assert list(copying.variants(original, swapped, counts)) == [original, swapped]
    assert list(copying.variants(original, original, counts)) == [original]
    assert counts == {"copied_documents": 1}
