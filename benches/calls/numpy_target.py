"""The target of the start row: all it does is to load numpy, once, before the workers are forked."""

import numpy

__all__ = ["numpy"]
