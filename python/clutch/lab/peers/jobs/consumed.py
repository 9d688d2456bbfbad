"""The module that consumers of job queues load: the app of the peer that the environment names."""

from __future__ import annotations

import os
from pathlib import Path

from clutch.lab.drivers import marks
from clutch.lab.peers import registry
from clutch.lab.peers.jobs.job_peer import PEER, URL, At, JobPeer

_peer = registry.named(os.environ[PEER])
assert isinstance(_peer, JobPeer)
globals().update(_peer.app(At(Path(os.environ[marks.FOLDER]), os.environ.get(URL))))
