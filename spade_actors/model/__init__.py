"""The model both roles share: a Qwen3 for training, its files, and scoring of given tokens.

``spade_actors.model.config`` imports no torch; everything else here does.
"""
