"""Who is measured: work under a setting, or a peer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from clutch.lab.load import Load
from clutch.lab.setting import AUTO, Setting
from clutch.lab.trial import Trial
from clutch.lab.work import Work


@dataclass(frozen=True)
class Contender:
    """What is started and measured: a setting of Clutch, or a peer. `slots`: units that it runs at a time, where that
    is known; `workers`: its processes."""

    name: str
    order: Mapping[str, Any]
    load: Load
    environment: Mapping[str, str] = field(default_factory=dict)
    slots: int | None = None
    workers: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def start(self, tell: Callable[[str], object] = lambda _: None, until: float = math.inf) -> Trial:
        """Raises TrialFailed. `tell`, `until`: see Trial."""
        return Trial(self.name, dict(self.order), self.environment, tell=tell, until=until)


def contender_of(work: Work, setting: Setting | None, load: Load | None = None) -> Contender:
    """The work under a setting; without one, as it runs already."""
    name, order = str(setting or work), work.order(setting)
    if setting is None:
        return Contender(name, order, load or work.load(None))
    # Under the profile that Clutch chooses nobody knows yet how many slots there are.
    slots = None if setting.profile == AUTO else setting.slots
    sizes = {"slots": slots, "workers": setting.workers, "options": setting.options()}
    return Contender(name, order, load or work.load(setting), **sizes)
