"""Results whose numbers are made up, for tests of what is said about them."""

import pickle
from typing import Any

from multiberts.stats.compare.result import Comparison
from multiberts.stats.results import with_values


def changed(comparison: Comparison, **values: Any) -> Comparison:
    """Returns a result with other numbers, as if its data had given them; no number is computed anew."""
    if "p_values" in values:
        recommended = values["p_values"].get("t")
        values["p_value"] = None if recommended is None else recommended.two_sided
    return with_values(pickle.loads(pickle.dumps(comparison)), **values)
