"""Generated environments in jails: providers, episodes, and the admission gate (`spade_sandbox.gate`)."""

from .errors import EnvironmentFailure, Fault, InfrastructureFailure, Reason, SandboxError, SandboxSetupError
from .limits import JailLimits
from .nsjail import Probe, probe
from .provider import Environment, NsjailProvider, ProcessProvider, SandboxProvider, Stats
from .replies import Facts, Inspection, Reset, Step
from .rootfs import ensure_rootfs
from .session import Session

__all__ = [
    "Environment",
    "EnvironmentFailure",
    "Facts",
    "Fault",
    "InfrastructureFailure",
    "Inspection",
    "JailLimits",
    "NsjailProvider",
    "Probe",
    "ProcessProvider",
    "Reason",
    "Reset",
    "SandboxError",
    "SandboxProvider",
    "SandboxSetupError",
    "Session",
    "Stats",
    "Step",
    "ensure_rootfs",
    "probe",
]
