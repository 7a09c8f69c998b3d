"""English nouns and given names that say a gender, in pairs.

Exchanged only where asked for: the paper's counterfactual data change pronouns alone. The lists are
short and of this project's own making. A noun is listed where its pair differs in gender and in little
else; so `lady` stands for `gentleman`, and words with a second common meaning (`miss`, `dame`, `fellow`,
`master`, `count`, `host`, `god`) are left out. Names are those borne almost by one gender alone, and mean
nothing else in running text (no `Mark`, `Will`, `Rose`, `Grace`); which name stands beside which is of no
matter.
"""

from __future__ import annotations

import re

# Feminine, masculine.
_NOUNS = """
woman man, women men, girl boy, girls boys, lady gentleman, ladies gentlemen, female male, females males,
mother father, mothers fathers, mommy daddy, mom dad, moms dads, daughter son, daughters sons,
sister brother, sisters brothers, wife husband, wives husbands, aunt uncle, aunts uncles,
niece nephew, nieces nephews, grandmother grandfather, grandmothers grandfathers, grandma grandpa,
granddaughter grandson, granddaughters grandsons, stepmother stepfather, stepdaughter stepson,
stepsister stepbrother, godmother godfather, goddaughter godson, bride bridegroom, brides bridegrooms,
widow widower, widows widowers, queen king, queens kings, princess prince, princesses princes,
duchess duke, duchesses dukes, baroness baron, empress emperor, empresses emperors, priestess priest,
heroine hero, heroines heroes, heiress heir, heiresses heirs, actress actor, actresses actors, waitress
waiter, waitresses waiters, stewardess steward, landlady landlord, landladies landlords, nun monk, nuns
monks, witch wizard, witches wizards, policewoman policeman, policewomen policemen, businesswoman
businessman, businesswomen businessmen, chairwoman chairman, chairwomen chairmen, spokeswoman spokesman,
spokeswomen spokesmen, saleswoman salesman, saleswomen salesmen, congresswoman congressman,
congresswomen congressmen, madam sir, madame monsieur, mrs mr, girlfriend boyfriend, girlfriends
boyfriends, schoolgirl schoolboy, schoolgirls schoolboys, motherhood fatherhood, sisterhood brotherhood,
womanhood manhood, girlhood boyhood
"""

_NAMES = """
Mary James, Patricia Robert, Jennifer John, Linda Michael, Elizabeth William, Barbara David,
Susan Richard, Jessica Joseph, Sarah Thomas, Karen Charles, Nancy Christopher, Lisa Daniel,
Betty Matthew, Sandra Anthony, Abigail Donald, Kimberly Steven, Emily Paul, Donna Andrew,
Michelle Joshua, Carol Kenneth, Amanda Kevin, Melissa Brian, Deborah George, Stephanie Edward,
Rebecca Ronald, Laura Timothy, Sharon Jason, Cynthia Jeffrey, Kathleen Ryan, Amy Jacob,
Angela Gary, Anna Nicholas, Ruth Eric, Brenda Jonathan, Pamela Stephen, Nicole Larry,
Katherine Justin, Samantha Scott, Christine Brandon, Catherine Benjamin, Miriam Samuel,
Debra Gregory, Rachel Alexander, Janet Patrick, Emma Jack, Maria Dennis, Monica Jerry,
Diane Tyler, Julie Aaron, Joyce Jose, Evelyn Henry, Joan Adam, Veronica Douglas, Eleanor Nathan,
Christina Peter, Lauren Zachary, Martha Kyle, Judith Walter, Cheryl Harold, Megan Jeremy,
Andrea Ethan, Ann Carl, Alice Keith, Ingrid Roger, Doris Gerald, Jacqueline Oscar,
Kathryn Frederick, Hannah Sean, Olivia Arthur, Gloria Victor, Marie Noah, Teresa Lawrence,
Sara Jesse, Janice Joe, Julia Bryan, Helen Billy, Charlotte Albert, Margaret Philip,
Sophia Louis, Isabella Ralph, Dorothy Eugene, Jane Hugh, Lucy Simon, Edith Herbert
"""


def _pairs(text: str) -> list[tuple[str, str]]:
    feminine_and_masculine = (pair.lower().split() for pair in text.split(","))
    return [(feminine, masculine) for feminine, masculine in feminine_and_masculine]


def _counterparts(pairs: list[tuple[str, str]]) -> dict[str, str]:
    return dict(pairs) | {masculine: feminine for feminine, masculine in pairs}


# Lower case to lower case, both ways.
NOUN_COUNTERPARTS = _counterparts(_pairs(_NOUNS))
NAME_COUNTERPARTS = _counterparts(_pairs(_NAMES))

# Each name to the number of its pair.
NAME_PAIRS = {name: number for number, pair in enumerate(_pairs(_NAMES)) for name in pair}

NOUN = re.compile(rf"\b(?:{'|'.join(sorted(NOUN_COUNTERPARTS))})\b", re.IGNORECASE)
NAME = re.compile(rf"\b(?:{'|'.join(sorted(NAME_COUNTERPARTS))})\b", re.IGNORECASE)
