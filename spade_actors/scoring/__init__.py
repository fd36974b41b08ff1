"""The scorer: a pure function from a complete trial to returns, regret, the designer's reward and the agents' advantages.

`score_trial` is the entry point `blend` of the group `spade_actors.scorers`. A scorer of your own is any function
`(ScoreTrial) -> TrialScore`; name it in `judge.scorer` (entry point or `package.module:function`), or serve it with
`spade-actors run scorer` and set `judge.scorer = "process"`. The same trial always gets the same score.
"""

from spade_actors.scoring.trial import ScorerSettings, score_trial

__all__ = ["ScorerSettings", "score_trial"]
