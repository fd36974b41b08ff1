"""A process of role `scorer`: serves any scorer function over the wire (`judge.scorer = "process"` makes the judge ask it).

It serves `judge.served_scorer` (an entry point or `package.module:function`), by default the built-in blend.
A scorer in another language serves `score.trial` the same way.
"""

from typing import ClassVar

import trio

from spade_actors.runtime.actor import Actor
from spade_actors.runtime.context import Context
from spade_actors.runtime.errors import CallError
from spade_actors.runtime.server import CallContext
from spade_actors.scoring.load import ScorerError, check_score, load_scorer
from spade_protocols.play import ScoreTrial, TrialScore


class ScorerProcess(Actor):
    """See the module."""

    role: ClassVar[str] = "scorer"

    async def run(self) -> None:
        """Serves until drained.

        Raises:
            ScorerError: the configured function cannot be found.
        """
        self._scorer = load_scorer(self.ctx.config.judge.served_scorer)
        await self.ctx.serve({ScoreTrial: self._score})
        await self.ctx.ready()
        await self.ctx.draining.wait()
        with trio.move_on_after(60.0), self.ctx.waits("the judge to drain", on="judge"):
            while self.ctx.peers.of("judge"):
                await self.ctx.peers.changed()

    async def _score(self, call: CallContext) -> TrialScore:
        asked = call.message
        assert isinstance(asked, ScoreTrial)
        try:
            return check_score(asked, await trio.to_thread.run_sync(self._scorer, asked, abandon_on_cancel=True))
        except ScorerError as error:
            raise CallError("bad_score", str(error)) from error
        except Exception as error:  # user code: whatever it raises becomes the trial's reason
            raise CallError("scorer_raised", f"{type(error).__name__}: {error}"[:300]) from error


def make(ctx: Context) -> ScorerProcess:
    """The actor of this role."""
    return ScorerProcess(ctx)
