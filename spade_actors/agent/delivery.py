"""An episode as the message that carries it to the judge. Pure.

Always holds: the buffers' lengths are equal; version spans cover sampled tokens only.
"""

from spade_actors.agent.episode import Episode
from spade_protocols.codec import pack_buffer
from spade_protocols.play import DeliverTrajectory, PlayItem, Turn

FINISHED = "finished"
FAILED = "failed"


def trajectory(
    play: PlayItem,
    episode: Episode,
    *,
    id_: str,
    attempt: int,
    failure: str,
    temperature: float,
    agent: str,
    seconds: float,
) -> tuple[DeliverTrajectory, list[bytes]]:
    """The message and its frames. `failure`: the environment's, or empty for an episode that finished."""
    tokens, token_bytes = pack_buffer(episode.tokens, "i4", 0)
    mask, mask_bytes = pack_buffer(episode.mask, "u1", 1)
    logprobs, logprob_bytes = pack_buffer(episode.logprobs, "f4", 2)
    message = DeliverTrajectory(
        play=id_,
        trial=play.trial,
        attempt=attempt,
        arm=play.arm,
        index=play.index,
        purpose=play.purpose,
        outcome=FAILED if failure else FINISHED,
        ending=failure or str(episode.ending),
        blame="environment" if failure else "",
        rewards=episode.rewards,
        terminated=episode.ending == "terminated",
        turns=[Turn(observation=t.observation, action=t.action, reward=t.reward) for t in episode.turns],
        tokens=tokens,
        mask=mask,
        logprobs=logprobs,
        versions=episode.versions,
        temperature=temperature,
        agent=agent,
        seconds=seconds,
    )
    return message, [token_bytes, mask_bytes, logprob_bytes]
