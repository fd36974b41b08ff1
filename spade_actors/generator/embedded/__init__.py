"""A small single-process inference server for tiny Qwen3 models that speaks SGLang's HTTP endpoints.

``slots`` (prefix cache), ``weights``, ``forward``, ``sampler`` and ``engine`` generate; ``wire``, ``http`` and ``server``
talk.  Everything runs on one thread: one forward step, one poll of the sockets, one forward step, ...
"""
