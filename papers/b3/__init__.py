"""B3 (Barnes and Dubrawski, 2017): the loss of a learner on new clusters. Public as `stats.b3`."""

import sys

from multiberts.stats.public_names import LazyPackage, modules_of

__all__ = [*modules_of(__name__)]

sys.modules[__name__].__class__ = LazyPackage
