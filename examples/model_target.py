"""A class as a target: each worker makes one object, and its methods are the tools.

The model is trained when a worker starts; threads of one worker share it. Needs numpy.

Run: python examples/model_target.py
"""

import importlib.util

from clutch import Pool


def main() -> None:
    if importlib.util.find_spec("numpy") is None:
        print("skipped: this example needs numpy (pip install numpy)")
        return
    import numpy

    with Pool("shop.models:DemandModel", profile="thread", workers=1, threads=2) as pool:
        print("predicted:", pool.call("predict", rows=[[1, 0, 0], [0, 1, 0], [1, 1, 2]]))

        features = numpy.eye(3)
        residuals = pool.call("residuals", features=features, demand=numpy.array([3.0, -2.0, 0.5]))
        print("residuals:", type(residuals).__name__, residuals.shape, bool(abs(residuals).max() < 0.01))


if __name__ == "__main__":
    main()
