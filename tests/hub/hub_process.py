"""A hub in a process of its own: `python hub_process.py RUN_DIR SOCKETS [TTL]`."""

import sys
from pathlib import Path

import msgspec

from spade_actors.config.schema import Config, HubConfig
from spade_actors.hub import make
from spade_actors.runtime import ProcessSettings, ipc_address, run_actor

run_dir, sockets = Path(sys.argv[1]), Path(sys.argv[2])
ttl = float(sys.argv[3]) if len(sys.argv) > 3 else 8.0
config = msgspec.structs.replace(Config(), hub=HubConfig(heartbeat_s=0.2, ttl_s=ttl))
settings = ProcessSettings(
    role="hub", name="hub", hub=ipc_address(sockets, "hub"), run_dir=run_dir, config=config, sockets=sockets
)
sys.exit(run_actor(make, settings))
