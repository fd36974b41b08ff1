"""Every setting of a run, typed, with its default and its help. No other place holds a default.

A field's help is the `description` of its `Meta`; `--dry-run`, the README's table and error messages are made from it. Unknown keys fail.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table of the TOML file."""


Positive = Annotated[int, Meta(ge=1)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class RunConfig(Section, frozen=True, kw_only=True):
    """[run]"""

    steps: Annotated[int, Meta(ge=1, description="learner updates after which the run is complete")] = 80
    seed: Annotated[int, Meta(ge=0, description="seeds every random stream of the run")] = 1
    profile: Annotated[
        Literal["micro", "full"],
        Meta(
            description="micro: the shipped one-million-parameter model and its short prompts; full: prompts for a real LLM"
        ),
    ] = "micro"
    model: Annotated[str, Meta(description="model folder in Hugging Face format; empty = the shipped micro model")] = ""


class HubConfig(Section, frozen=True, kw_only=True):
    """[hub]"""

    heartbeat_s: Annotated[float, Meta(gt=0, description="seconds between heartbeats of every process")] = 1.0
    ttl_s: Annotated[
        float, Meta(gt=0, description="silent for longer than this, a process is dead and its leases return")
    ] = 8.0
    commit_ms: Annotated[float, Meta(ge=0, le=10, description="longest wait for others to share a journal commit")] = (
        2.0
    )


class MemoryConfig(Section, frozen=True, kw_only=True):
    """[memory]"""

    corpus: Annotated[str, Meta(description="JSONL file of passages; empty = the shipped corpus")] = ""
    recent: Annotated[int, Meta(ge=1, description="judged environments per skill from which exemplars are chosen")] = 40
    best: Annotated[
        int,
        Meta(ge=1, description="how many of the recent, ranked by the lower confidence bound of regret, are exemplars"),
    ] = 8
    exemplar_rate: Annotated[Share, Meta(description="probability that a brief carries an exemplar")] = 0.5
    exemplars: Annotated[int, Meta(ge=0, le=4, description="exemplars in such a brief")] = 1
    difficulty: Annotated[Literal["easy", "medium", "hard"], Meta(description="difficulty named in every brief")] = (
        "medium"
    )
    confidence: Annotated[
        float, Meta(ge=0, description="exemplars rank by regret - confidence * its standard error")
    ] = 1.0
    duplicate_window: Annotated[
        int,
        Meta(
            ge=0,
            description="newest admitted environments a proposal must differ from, exactly and after renaming; 0 = all",
        ),
    ] = 256


class DesignerConfig(Section, frozen=True, kw_only=True):
    """[designer]"""

    count: Annotated[int, Meta(ge=0, description="designer processes on this node")] = 1
    concurrency: Annotated[int, Meta(ge=1, description="generations at once per process")] = 32
    temperature: Annotated[float, Meta(gt=0, description="sampling temperature")] = 1.0
    max_tokens: Annotated[int, Meta(ge=16, description="tokens per design, source and hint together")] = 400
    timeout_s: Annotated[float, Meta(gt=0, description="deadline of one generation, seconds")] = 60.0
    drain_s: Annotated[float, Meta(ge=0, description="seconds running generations may take to end on drain")] = 20.0


class AgentConfig(Section, frozen=True, kw_only=True):
    """[agent]"""

    count: Annotated[int, Meta(ge=0, description="agent processes on this node")] = 1
    concurrency: Annotated[int, Meta(ge=2, description="plays at once per process")] = 64
    temperature: Annotated[float, Meta(gt=0, description="sampling temperature")] = 1.0
    max_tokens: Annotated[int, Meta(ge=1, description="tokens per action")] = 8
    max_turns: Annotated[
        int, Meta(ge=1, description="turns per play; the environment's own max_turns may be smaller")
    ] = 14
    max_context: Annotated[int, Meta(ge=64, description="tokens of one episode, prompts and actions together")] = 768
    action_format: Annotated[
        Literal["raw", "boxed"], Meta(description="raw: the whole text is the action; boxed: the last \\boxed{...}")
    ] = "raw"
    thinking_history: Annotated[Literal["keep"], Meta(description="keep: the context only grows")] = "keep"
    timeout_s: Annotated[float, Meta(gt=0, description="deadline of one turn's generation, seconds")] = 60.0
    drain_s: Annotated[float, Meta(ge=0, description="seconds running plays may take to end on drain")] = 20.0


class SandboxConfig(Section, frozen=True, kw_only=True):
    """[sandbox]"""

    count: Annotated[int, Meta(ge=0, description="sandbox processes on this node")] = 1
    provider: Annotated[
        Literal["nsjail", "process"], Meta(description="process = plain subprocesses, only with allow_unsafe")
    ] = "nsjail"
    allow_unsafe: Annotated[
        bool, Meta(description="permit running generated code without a jail where nsjail cannot run")
    ] = False
    fresh: Annotated[
        Literal["fork", "jail"],
        Meta(description="fork: each episode is a fork of its environment's zygote; jail: a jail per episode"),
    ] = "fork"
    pool: Annotated[int, Meta(ge=1, description="warm jails kept ready")] = 6
    keep_idle: Annotated[
        int, Meta(ge=0, description="environments whose jail is kept for a while after its last episode")
    ] = 16
    sessions: Annotated[int, Meta(ge=1, description="episode sessions at once per process")] = 128
    backlog: Annotated[int, Meta(ge=0, description="opens that may wait for a slot before others are refused busy")] = (
        256
    )
    gates: Annotated[int, Meta(ge=1, description="proposals in the admission gate at once")] = 2
    step_s: Annotated[float, Meta(gt=0, description="wall clock of one reset or step, seconds")] = 2.0
    session_s: Annotated[float, Meta(gt=0, description="wall clock of one session, seconds")] = 120.0
    cpu_s: Annotated[int, Meta(ge=1, description="CPU seconds of one episode")] = 5
    memory_mb: Annotated[int, Meta(ge=32, description="address space of a jailed process, MiB")] = 512
    output_bytes: Annotated[int, Meta(ge=256, description="longest observation, bytes")] = 8192
    trivial_rate: Annotated[Share, Meta(description="largest share of plays a trivial policy may win")] = 0.34
    gate_seeds: Annotated[int, Meta(ge=2, description="instances the gate looks at")] = 4


class JudgeConfig(Section, frozen=True, kw_only=True):
    """[judge]"""

    scorer: Annotated[
        str,
        Meta(
            description="name of an entry point in `spade_actors.scorers`, `package.module:function`, "
            "or `process` (a peer of role scorer answers score.trial)"
        ),
    ] = "blend"
    pairs: Annotated[
        int, Meta(ge=1, description="seeds per trial; each is played once without and once with the hint")
    ] = 8
    min_pairs: Annotated[int, Meta(ge=1, description="pairs a trial needs to be scored")] = 4
    served_scorer: Annotated[
        str, Meta(description="what a process of role scorer serves: an entry point or `package.module:function`")
    ] = "blend"
    score_timeout_s: Annotated[
        float, Meta(gt=0, description="seconds a scorer may take for one trial before the trial is withdrawn")
    ] = 30.0
    train_hinted: Annotated[
        bool,
        Meta(
            description="train hinted plays too, as groups of their own: twice the samples for the same plays, and the small"
            " model learns to read hints; false = the published method"
        ),
    ] = True
    advantage: Annotated[
        Literal["center", "zscore"],
        Meta(description="agent advantages: return minus the group's mean, or that over the group's deviation (GRPO)"),
    ] = "center"
    design_group: Annotated[
        int, Meta(ge=2, description="consecutive briefs of one skill whose rewards are centred together")
    ] = 8
    skills: Annotated[list[str], Meta(description="skills that briefs rotate through; empty = the profile's own")] = []
    eta: Annotated[
        int, Meta(ge=0, description="how many batches sampling may run ahead of training; 0 = synchronous")
    ] = 1
    max_staleness_agent: Annotated[
        int, Meta(ge=0, description="oldest weight version a trained agent token may lag behind, in versions")
    ] = 4
    max_staleness_designer: Annotated[int, Meta(ge=0, description="the same for designs; 0 = agent + 4")] = 0
    invalid_reward: Annotated[float, Meta(description="reward of an invalid design")] = -0.1
    plateau_lo: Annotated[float, Meta(description="win rate where the plateau begins")] = 0.4
    plateau_hi: Annotated[float, Meta(description="win rate where the plateau ends")] = 0.6
    plateau_ramp: Annotated[float, Meta(gt=0, description="width of the linear ramps beside the plateau")] = 0.25
    plateau_weight: Annotated[float, Meta(ge=0, description="weight of the plateau in the blend")] = 0.6
    regret_weight: Annotated[float, Meta(ge=0, description="weight of the scaled regret in the blend")] = 0.4
    regret_scale: Annotated[float, Meta(gt=0, description="regret that counts as 1")] = 0.15
    regret_shrink: Annotated[
        bool, Meta(description="floor the shrunk regret r * s0^2 / (s0^2 + SE^2); false = the published blend")
    ] = True
    regret_prior: Annotated[float, Meta(gt=0, description="s0 of the shrinkage")] = 0.15
    negative_scale: Annotated[float, Meta(ge=0, description="factor on negative designer advantages")] = 0.5
    eval_every: Annotated[
        int, Meta(ge=0, description="versions between held-out evaluations; 0 = only first and last")
    ] = 20
    eval_plays: Annotated[
        int, Meta(ge=1, description="plays per environment in the first and last held-out evaluation")
    ] = 4
    eval_hinted: Annotated[
        int, Meta(ge=0, description="hinted plays per environment in the first and last held-out evaluation")
    ] = 1
    eval_small: Annotated[int, Meta(ge=1, description="held-out environments in an evaluation between")] = 48
    heldout: Annotated[str, Meta(description="JSONL file of held-out environments; empty = the shipped set")] = ""

    def staleness_bound(self, role: str) -> int:
        """Versions a trained token of `role` (agent | designer) may lag behind at consumption.

        0 for both when `eta` is 0: then design, trial and update of a sample happen at one version.
        """
        if self.eta == 0:
            return 0
        if role == "agent":
            return self.max_staleness_agent
        return self.max_staleness_designer or self.max_staleness_agent + 4


class LearnerConfig(Section, frozen=True, kw_only=True):
    """[learner]"""

    batch: Annotated[int, Meta(ge=1, description="B: trainable samples per update")] = 288
    designer_share: Annotated[Share, Meta(description="wanted share of designer samples in a batch")] = 0.11
    min_batch: Annotated[int, Meta(ge=1, description="samples below which a late batch still waits")] = 64
    max_wait_s: Annotated[float, Meta(gt=0, description="seconds after which a batch starts with what is there")] = 30.0
    minibatches: Annotated[int, Meta(ge=1, description="optimizer steps per batch")] = 4
    lr: Annotated[float, Meta(ge=0, description="AdamW learning rate")] = 6e-4
    betas: Annotated[tuple[float, float], Meta(description="AdamW betas")] = (0.9, 0.95)
    weight_decay: Annotated[float, Meta(ge=0, description="AdamW weight decay")] = 0.0
    clip: Annotated[float, Meta(gt=0, description="gradient norm bound")] = 1.0
    clip_low: Annotated[float, Meta(gt=0, lt=1, description="ratio clip below 1")] = 0.2
    clip_high: Annotated[float, Meta(gt=0, description="ratio clip above 1 (clip-higher)")] = 0.28
    weight_cap: Annotated[
        float, Meta(gt=0, description="c: cap of the off-policy weight exp(logp_prox - logp_recorded)")
    ] = 2.0
    agent_weight: Annotated[float, Meta(ge=0, description="weight of the agent's loss")] = 1.0
    designer_weight: Annotated[
        float, Meta(ge=0, description="weight of the designer's loss; 0 freezes the designer role")
    ] = 6.0
    agent_kl: Annotated[float, Meta(ge=0, description="KL to the initial weights, agent tokens")] = 0.02
    designer_kl: Annotated[
        float, Meta(ge=0, description="KL to the initial weights, designer tokens, inside the designer's loss")
    ] = 0.2
    kl: Annotated[
        Literal["full", "k3"],
        Meta(description="full: exact over the vocabulary, for small ones; k3: estimated from the sampled token"),
    ] = "full"
    microbatch_tokens: Annotated[
        int, Meta(ge=64, description="token budget of one forward; only splits, never changes the loss")
    ] = 8192
    publish_every: Annotated[int, Meta(ge=1, description="updates between weight publications")] = 1
    checkpoint_every: Annotated[int, Meta(ge=1, description="updates between checkpoints")] = 10
    keep_last: Annotated[int, Meta(ge=1, description="checkpoints kept")] = 2
    keep_weights: Annotated[
        int,
        Meta(ge=2, description="newest published weight versions kept; version 0 always is, and what a server needs"),
    ] = 4
    threads: Annotated[int, Meta(ge=1, description="torch threads")] = 1


class GeneratorConfig(Section, frozen=True, kw_only=True):
    """[generator]"""

    count: Annotated[int, Meta(ge=0, description="generator processes on this node, one server each")] = 1
    kind: Annotated[
        Literal["embedded", "sglang", "sglang-url"],
        Meta(
            description="embedded: torch engine on this CPU; sglang: start a server; sglang-url: attach to a running one"
        ),
    ] = "embedded"
    url: Annotated[str, Meta(description="sglang-url: the server's base URL")] = ""
    python: Annotated[str, Meta(description="sglang: interpreter that has SGLang; empty = this one")] = ""
    arguments: Annotated[list[str], Meta(description="sglang: extra server arguments, passed through unchanged")] = []
    slots: Annotated[int, Meta(ge=1, description="embedded: sequences in the static cache")] = 128
    max_len: Annotated[int, Meta(ge=64, description="embedded: tokens per sequence")] = 1024
    threads: Annotated[int, Meta(ge=1, description="embedded: torch threads")] = 1
    start_s: Annotated[float, Meta(gt=0, description="seconds a server may take to become healthy")] = 300.0


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    run: RunConfig = RunConfig()
    hub: HubConfig = HubConfig()
    memory: MemoryConfig = MemoryConfig()
    designer: DesignerConfig = DesignerConfig()
    agent: AgentConfig = AgentConfig()
    sandbox: SandboxConfig = SandboxConfig()
    judge: JudgeConfig = JudgeConfig()
    learner: LearnerConfig = LearnerConfig()
    generator: GeneratorConfig = GeneratorConfig()
