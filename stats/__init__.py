"""Statistics over seeds and examples: the Multi-Bootstrap, intervals, tests, tables and figures.

    from stats import compare, compare_tasks, multibootstrap, report_ci

Nothing here imports TensorFlow; pandas, xarray and Matplotlib are imported where they are first
needed.
"""

from stats.comparison import compare
from stats.conclusion import Comparison
from stats.intervals import report_ci
from stats.multibootstrap import multibootstrap
from stats.tasks import Task, TaskComparisons, compare_tasks

__all__ = [
    "Comparison",
    "Task",
    "TaskComparisons",
    "compare",
    "compare_tasks",
    "multibootstrap",
    "report_ci",
]
