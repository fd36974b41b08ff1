"""Model configs: the Hugging Face mapping there and back, and refusals that name what is wrong."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spade_actors.model.config import ModelConfig, ModelFormatError

configs = st.builds(
    lambda groups, kv, half, layers, d, tied, theta: ModelConfig(
        hidden_size=d,
        num_attention_heads=groups * kv,
        num_key_value_heads=kv,
        head_dim=2 * half,
        num_hidden_layers=layers,
        tie_word_embeddings=tied,
        rope_theta=theta,
    ),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 64),
    st.integers(1, 48),
    st.integers(1, 4096),
    st.booleans(),
    st.sampled_from([1e4, 1e6, 5e6]),
)


@given(configs)
def test_a_config_survives_the_hugging_face_mapping(config):
    assert ModelConfig.from_hf(config.to_hf()) == config


def test_the_default_is_the_micro_model():
    assert ModelConfig().parameter_count() == 951_680


def test_rotary_settings_of_newer_files_are_read():
    raw = ModelConfig().to_hf()
    del raw["rope_theta"]
    raw["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6}
    assert ModelConfig.from_hf(raw).rope_theta == 1e6


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("model_type", "llama", "model_type = 'llama'"),
        ("attention_bias", True, "attention_bias"),
        ("use_sliding_window", True, "use_sliding_window"),
        ("hidden_act", "gelu", "hidden_act = 'gelu'"),
        ("rope_scaling", {"rope_type": "yarn"}, "rotary"),
        ("vocab_size", None, "vocab_size is missing"),
        ("num_key_value_heads", 3, "num_key_value_heads = 3"),
    ],
)
def test_what_is_not_computed_is_refused(key, value, says):
    raw = ModelConfig().to_hf() | {key: value}
    with pytest.raises(ModelFormatError, match=says):
        ModelConfig.from_hf(raw)


def test_a_missing_or_broken_file_is_named(tmp_path):
    with pytest.raises(ModelFormatError, match=r"config\.json: no such file"):
        ModelConfig.read(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ModelFormatError, match="not valid JSON"):
        ModelConfig.read(tmp_path)


def test_the_config_module_needs_no_torch():
    code = "import sys, spade_actors.model.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=30, check=False).returncode == 0
