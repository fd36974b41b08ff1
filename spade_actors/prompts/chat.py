"""Chat rendering as a token list that only grows.

What always holds: no token is ever removed or re-tokenised. A context is `start(...)`, then for every assistant turn
the sampled ids exactly as the generator returned them, then `follow(...)`. As long as the sampled text re-encodes to
the sampled ids, the whole list equals the encoding of the chat template's rendering of the same messages.

The format is ChatML as used by Qwen instruct models without thinking. `generation_suffix` holds what a hybrid model's
template adds after the assistant header when thinking is off.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"

CHAT_TEMPLATE = (
    "{%- for message in messages %}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
"""The Jinja template written to `tokenizer_config.json`; equal to `render` for every list of messages."""


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message; `role` is system, user or assistant."""

    role: str
    content: str


def defuse(text: str) -> str:
    """Breaks control tokens in untrusted text (observations, passages), so that it cannot open or close a turn."""
    return text.replace("<|", "< |")


def render(messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
    """Renders messages as text, exactly as `CHAT_TEMPLATE` does."""
    text = "".join(f"{IM_START}{m.role}\n{m.content}{IM_END}\n" for m in messages)
    return text + f"{IM_START}assistant\n" if add_generation_prompt else text


@dataclass(frozen=True, slots=True)
class Chat:
    """Token-level chat over any tokenizer.

    encode: text -> ids, with the control tokens recognised and nothing added at either end.
    end_id: id of `<|im_end|>`, which is also the stop token of every generation.
    """

    encode: Callable[[str], list[int]]
    end_id: int
    generation_suffix: str = ""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Token ids that end an assistant turn."""
        return (self.end_id,)

    def start(self, user: str, system: str | None = None) -> list[int]:
        """Ids of the first prompt: optional system turn, user turn, assistant header. User text is defused."""
        messages = [Message("system", system)] if system else []
        messages.append(Message("user", defuse(user)))
        return self.encode(render(messages) + self.generation_suffix)

    def follow(self, sampled: Sequence[int], user: str) -> list[int]:
        """Ids to append after an assistant turn: its end if the sample lacks it, the next user turn, the header.

        None of the returned tokens was sampled: all of them carry mask 0.
        """
        close = "" if sampled and sampled[-1] == self.end_id else IM_END
        text = close + "\n" + render([Message("user", defuse(user))]) + self.generation_suffix
        return self.encode(text)

    def spoken(self, sampled: Sequence[int]) -> list[int]:
        """The sampled ids without a final end token: what is decoded and handed to a parser."""
        return list(sampled[:-1]) if sampled and sampled[-1] == self.end_id else list(sampled)
