"""A model as a target: the class is made once in each worker, its tools are methods."""

import numpy

from clutch import tool

_SEED = 7
_SAMPLES = 1_000
_TRUE_WEIGHTS = numpy.array([3.0, -2.0, 0.5])


class DemandModel:
    """Predicts demand from price, distance and season by linear regression, trained when the worker starts."""

    def __init__(self) -> None:
        rng = numpy.random.default_rng(_SEED)
        features = rng.normal(size=(_SAMPLES, len(_TRUE_WEIGHTS)))
        demand = features @ _TRUE_WEIGHTS + rng.normal(scale=0.01, size=_SAMPLES)
        self._weights = numpy.linalg.lstsq(features, demand, rcond=None)[0]

    @tool
    def predict(self, rows: list[list[float]]) -> list[float]:
        """One prediction for each row of features."""
        return (numpy.asarray(rows) @ self._weights).round(1).tolist()

    @tool
    def residuals(self, features: numpy.ndarray, demand: numpy.ndarray) -> numpy.ndarray:
        """Arrays travel through shared memory and come back as arrays."""
        return demand - features @ self._weights
