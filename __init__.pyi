from multiberts.papers import b3, zhong
from multiberts.report.answers.borrowed_spread import SeedSpread, one_seed
from multiberts.report.answers.published_number import reproduce
from multiberts.report.answers.sameness import same
from multiberts.report.answers.slicing import slices
from multiberts.report.arms_of_files import read
from multiberts.report.page import write_html
from multiberts.stats.compare.arms import compare_arms
from multiberts.stats.compare.tasks import compare_tasks
from multiberts.stats.compare.two_arms import compare

__version__: str
__all__ = [
    "SeedSpread",
    "b3",
    "compare",
    "compare_arms",
    "compare_tasks",
    "one_seed",
    "read",
    "reproduce",
    "same",
    "slices",
    "write_html",
    "zhong",
]
