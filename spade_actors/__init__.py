"""spade-actors: SPADE self-play as an event-driven system of independent processes."""

__version__ = "0.1.0"
