"""Statistics over seeds and examples: the Multi-Bootstrap, intervals, tests, tables and figures.

    from multiberts.stats import compare, compare_arms, compare_tasks, from_frame, multibootstrap

Nothing here imports TensorFlow; pandas, xarray and Matplotlib are imported where they are first
needed.
"""

from multiberts.stats.bootstrap.published import multibootstrap, report_ci
from multiberts.stats.compare.arms import compare_arms
from multiberts.stats.compare.question import TaskData as Task
from multiberts.stats.compare.question import compare
from multiberts.stats.compare.ranking import ArmComparisons
from multiberts.stats.compare.result import Comparison
from multiberts.stats.compare.tasks import TaskComparisons, compare_tasks
from multiberts.stats.reading import from_frame
from multiberts.stats.report.own_files import read_predictions

__all__ = [
    "ArmComparisons",
    "Comparison",
    "Task",
    "TaskComparisons",
    "compare",
    "compare_arms",
    "compare_tasks",
    "from_frame",
    "multibootstrap",
    "read_predictions",
    "report_ci",
]
