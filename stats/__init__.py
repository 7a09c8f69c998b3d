"""Statistics over seeds and examples: the Multi-Bootstrap, intervals, tests, tables and figures.

    from stats import compare, multibootstrap, report_ci

Nothing here imports TensorFlow; pandas, xarray and Matplotlib are imported where they are first
needed.
"""

from stats.comparison import Comparison, compare
from stats.intervals import report_ci
from stats.multibootstrap import multibootstrap

__all__ = ["Comparison", "compare", "multibootstrap", "report_ci"]
