"""Prompt rendering and answer parsing for both roles: pure text and token functions.

Nothing here imports torch or trio, reads a clock or draws a random number: the same inputs give the same prompt.
"""
