"""The micro profile: environment families, warm-up corpus, tokenizer, bootstrap and the shipped model.

Only `bootstrap` and the modules it runs (`train`, `decode`) import torch; everything else is pure Python.
"""
