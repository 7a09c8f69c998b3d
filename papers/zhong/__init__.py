"""Instance-level statistics (Zhong et al., 2021). Public as `stats.zhong`."""

import sys

from multiberts.stats.public_names import LazyPackage, modules_of

__all__ = [*modules_of(__name__)]

sys.modules[__name__].__class__ = LazyPackage
