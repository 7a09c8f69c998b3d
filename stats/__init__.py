"""Statistics over seeds and examples: the Multi-Bootstrap, intervals, tests, tables and figures.

    from multiberts.stats import compare, compare_arms, compare_tasks, from_frame, multibootstrap

Nothing here imports TensorFlow; pandas, xarray and Matplotlib are imported where they are first
needed.
"""

from multiberts.stats.bootstrap.comparison import TaskResults as Task
from multiberts.stats.bootstrap.comparison import compare
from multiberts.stats.bootstrap.conclusion import Comparison
from multiberts.stats.bootstrap.inputs import from_frame
from multiberts.stats.bootstrap.many_arms import compare_arms
from multiberts.stats.bootstrap.published import multibootstrap, report_ci
from multiberts.stats.bootstrap.ranking import ArmComparisons
from multiberts.stats.bootstrap.task_family import TaskComparisons, compare_tasks
from multiberts.stats.report.own_predictions import read_predictions

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
