"""Pronouns are swapped as asked, and the rule for "her" and "his" is right as often as stated."""

import itertools
import re

import pytest

from pretrain.counterfactual import swap_pronouns

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


def swap_all(text):
    return swap_pronouns(text, counterfactual_seed=0, document=0, probability=1.0)[0]


@pytest.mark.parametrize(("labelled", "least_right"), [(LABELLED, 70), (HELD_OUT, 21)])
def test_rule_is_right_as_often_as_measured(labelled, least_right):
    """Measured: 70 of the 71 sentences at hand, 21 of the 30 held out, which are harder than text."""
    wrong = [(text, swap_all(text)) for text, expected in labelled if swap_all(text) != expected]
    assert len(labelled) - len(wrong) >= least_right, wrong


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
