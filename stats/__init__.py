"""Statistics over seeds and examples; the methods of two papers are in `stats.b3` and `stats.zhong`.

    from multiberts import stats

All documented names are public here; the paths of modules may change. Names are imported on first use. The
package never imports TensorFlow, and pandas, xarray and Matplotlib only when needed.
"""

import sys

from multiberts.stats.public_names import LazyPackage, modules_of

__all__ = [*modules_of(__name__)]

sys.modules[__name__].__class__ = LazyPackage
