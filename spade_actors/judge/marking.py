"""Scoring complete trials, in this process or by a peer of role `scorer`.

Always holds: a scorer that raises, hangs or answers nonsense costs its trial (withdrawn with the reason), nothing else;
while no scorer process lives, trials wait for one under a named wait.
"""

import time

import trio

from spade_actors.config.schema import JudgeConfig
from spade_actors.judge.desk import Desk
from spade_actors.judge.trials import Trial, play_scores
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallFailed, CallTimeout, PeerGone
from spade_actors.scoring import ScorerSettings
from spade_actors.scoring.load import PROCESS, Scorer, ScorerError, check_score, load_scorer
from spade_protocols.play import ScoreTrial, TrialScore

AT_ONCE = 4
PAUSE_S = 0.5


class Marking:
    """Scores whatever the desk has to be scored.

    Raises:
        ScorerError: at construction, when the configured scorer cannot be found.
    """

    def __init__(self, ctx: Context, desk: Desk, config: JudgeConfig) -> None:
        self._ctx = ctx
        self._desk = desk
        self._timeout = config.score_timeout_s
        self._scorer: Scorer | None = None if config.scorer == PROCESS else load_scorer(config.scorer)
        self._settings = {name: getattr(config, name) for name in ScorerSettings.__struct_fields__}
        self._busy: set[str] = set()

    async def run(self) -> None:
        """Scores for ever, a few trials at once."""
        limit = trio.CapacityLimiter(AT_ONCE)
        async with trio.open_nursery() as nursery:
            while True:
                await self._desk.scoring.wait()
                self._desk.scoring = trio.Event()
                for trial in self._desk.machine.to_score():
                    if trial.id not in self._busy:
                        self._busy.add(trial.id)
                        nursery.start_soon(self._mark, trial, limit)

    async def _mark(self, trial: Trial, limit: trio.CapacityLimiter) -> None:
        asked = ScoreTrial(
            trial=trial.id,
            environment=trial.environment,
            skill=trial.skill,
            plays=play_scores(trial),
            settings=self._settings,
        )
        async with limit:
            try:
                score = check_score(asked, await (self._here(asked) if self._scorer else self._there(asked)))
            except ScorerError as error:
                self._ctx.log.warning("trial is withdrawn", trial=trial.id, reason=str(error))
                self._desk.machine.score_failed(trial.id, str(error))
            else:
                self._desk.machine.scored(trial.id, score)
        self._busy.discard(trial.id)
        self._desk.touch()

    async def _here(self, asked: ScoreTrial) -> object:
        assert self._scorer is not None
        with trio.move_on_after(self._timeout):
            try:
                return await trio.to_thread.run_sync(self._scorer, asked, abandon_on_cancel=True)
            except Exception as error:  # user code: whatever it raises becomes the trial's reason
                raise ScorerError(f"the scorer raised {type(error).__name__}: {error}"[:300]) from error
        raise ScorerError(f"the scorer gave no answer within {self._timeout:g} s")

    async def _there(self, asked: ScoreTrial) -> TrialScore:
        while True:
            try:
                scorer = await self._ctx.peer("scorer", deadline=time.time() + self._timeout)
                reply = (await scorer.call(asked, timeout=self._timeout)).message
            except PeerGone:
                pass
            except CallTimeout as error:
                raise ScorerError(f"the scorer process gave no answer within {self._timeout:g} s") from error
            except CallFailed as error:
                if not error.retry:
                    raise ScorerError(f"the scorer process refused: {error}"[:300]) from error
            else:
                assert isinstance(reply, TrialScore)
                return reply
            with self._ctx.waits("to ask again", on="scorer"):
                await trio.sleep(PAUSE_S)
