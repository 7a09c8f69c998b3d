"""B3 as a cross-validator of scikit-learn; `stats.b3.model` has the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multiberts.stats.b3.fit import SearchRule
from multiberts.stats.b3.leakage import LeakageDesign, leakage_levels
from multiberts.stats.b3.model import B3Model, B3Result, Directions, estimate_loss
from multiberts.stats.b3.trend_filter import Regularisation
from multiberts.stats.bootstrap.arms import DataError

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class B3CrossValidator:
    """B3 as a cross-validator: any estimator, through `sklearn.model_selection`.

    Example:
        validator = B3CrossValidator(p_0=0.1, num_train=50, num_draws=20)
        scores = cross_val_score(estimator, X, y, groups=groups, cv=validator)  # accuracy
        result = validator.estimate(1 - scores, groups)

    Splits come level by level, `num_draws` each; `levels` and `leakages` tell which is which.
    Training indices repeat, as draws with replacement do.
    """

    def __init__(
        self,
        *,
        p_0: float | None = 0.1,
        directions: Directions = "one",
        purity: float | None = None,
        candidates: Sequence[float] | None = None,
        search_rule: SearchRule = "largest_consistent",
        num_train: int = 100,
        num_levels: int | None = None,
        num_draws: int = 25,
        max_injection: float = 1.0,
        num_test: int | None = None,
        regularisation: Regularisation | None = None,
        bootstrap_seed: int = 0,
    ):
        """Arguments are those of `b3`; `num_draws` has a default for estimators that take time."""
        self.num_train, self.num_draws = num_train, num_draws
        self.num_levels = 2 * num_train + 1 if num_levels is None else num_levels
        self.max_injection, self.num_test = max_injection, num_test
        self.bootstrap_seed = bootstrap_seed
        self._model = B3Model(directions, p_0, purity, candidates, search_rule, regularisation)

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Levels x draws."""
        return self.num_levels * self.num_draws

    @property
    def levels(self) -> Indices:
        """Level of each split [splits]."""
        return np.repeat(np.arange(self.num_levels), self.num_draws)

    def leakages(self, groups: ArrayLike) -> Floats:
        """Leakage of each split [splits].

        Raises:
          DataError: p_0 is searched, so it is not known before `estimate`.
        """
        design = self._design(groups)
        if self._model.p_0 is None:
            raise DataError("leakages of splits are not known where p_0 is searched; give p_0")
        self._model.check(design)
        purity = self._model.purity_at(design, self._model.p_0)
        return leakage_levels(self._model.p_0, design.injections, purity)[self.levels]

    def split(
        self, X: Any, y: Any = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[Indices, Indices]]:
        """Training [n'] and test [tests] indices of every draw of every level.

        Raises:
          DataError: groups are missing or do not allow it.
        """
        if groups is None:
            raise DataError("found no groups; give the observed cluster of every sample")
        if X is not None and len(X) != len(np.asarray(groups)):
            raise DataError(
                f"found {len(X)} samples and {len(np.asarray(groups))} groups, expected one a "
                "sample"
            )
        design = self._design(groups)
        self._model.check(design)
        return self._pairs(design)

    def _pairs(self, design: LeakageDesign) -> Iterator[tuple[Indices, Indices]]:
        for level in range(design.num_levels):
            drawn = design.draws(level)
            yield from zip(drawn.train, drawn.test, strict=True)

    def estimate(
        self,
        losses: ArrayLike,
        groups: ArrayLike,
        confidence: float = 0.95,
        num_bootstrap: int = 200,
    ) -> B3Result:
        """The loss on new clusters, from the losses of the splits.

        Args:
          losses: one a split, smaller is better [splits]: 1 - accuracy, or minus scikit-learn's
            `neg_...` scores.
          groups: the observed clusters of `split` [samples].
          confidence: level of the interval.
          num_bootstrap: bootstrap samples for it.

        Raises:
          DataError: there are not as many losses as splits, or one is not finite.
        """
        values = np.asarray(losses, dtype=np.float64)
        if values.shape != (self.get_n_splits(),):
            raise DataError(
                f"found losses of shape {values.shape}, expected one for each of the "
                f"{self.get_n_splits()} splits"
            )
        if not np.isfinite(values).all():
            raise DataError(
                f"losses: found {values[~np.isfinite(values)][0]} at split "
                f"{int(np.argmax(~np.isfinite(values)))}, expected finite values; use "
                "error_score='raise' to see why the estimator failed"
            )
        design = self._design(groups)
        self._model.check(design)
        table = values.reshape(self.num_levels, self.num_draws, 1)
        return estimate_loss(design, table, self._model, confidence, num_bootstrap)

    def _design(self, groups: ArrayLike) -> LeakageDesign:
        return LeakageDesign(
            groups,
            num_train=self.num_train,
            num_levels=self.num_levels,
            num_draws=self.num_draws,
            max_injection=self.max_injection,
            num_test=self.num_test,
            bootstrap_seed=self.bootstrap_seed,
        )
