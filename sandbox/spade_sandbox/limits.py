"""What a jail and an episode may use. Every number is enforced outside the generated code: by the kernel or by the host."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JailLimits:
    """Limits of one jail (one source) and of each episode in it."""

    memory_mb: int = 192  # address space one episode may add to the interpreter's own
    jail_memory_mb: int = 1024  # all episodes of a jail together (cgroup only): a backstop for the host
    cpu_s: int = 10  # processor seconds of one episode
    sessions: int = 128  # episodes at once in one jail
    threads: int = 16  # threads all episodes of a jail may start together
    tmp_mb: int = 1  # the jail's /tmp; episodes cannot open anything for writing anyway
    open_files: int = 64
    output_bytes: int = 256 * 1024  # what an episode may print in all
    reply_bytes: int = 256 * 1024  # one reply on the channel
    source_chars: int = 262_144
    observation_chars: int = 65_536
    info_depth: int = 16
    load_s: float = 10.0  # wall clock for compiling, and for loading and resetting
    step_s: float = 5.0  # wall clock for one step
    lifetime_s: int = 86_400  # wall clock of a jail, enforced by nsjail
    nice: int = 0

    @property
    def child_processes(self) -> int:
        """Process limit an episode sees; below the jail's, so that its threads never keep the zygote from forking."""
        return 2 + self.sessions + self.threads

    @property
    def jail_processes(self) -> int:
        """Process limit of the zygote."""
        return self.child_processes + self.sessions

    def guest_arguments(self, filtered: bool) -> list[str]:
        """The guest's command line, in the order of its `Limits`."""
        values = (self.cpu_s, self.memory_mb, self.child_processes, self.output_bytes, self.reply_bytes, int(filtered))
        return [str(v) for v in values]
