"""The module that consumers load: the app of the contestant, over the store, that the environment names."""

from __future__ import annotations

import os

from benches.jobs import contestants, launch

globals().update(contestants.named(os.environ[launch.CONTESTANT]).app(os.environ[launch.URL]))
