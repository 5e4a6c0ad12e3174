"""That each setting is in force in models of every kind, those of the reference scripts included, and harms none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from autotune.inference.feeds import make_feeds, read_shapes
from autotune.inference.model import read_model
from autotune.inference.profile import _nodes
from autotune.inference.session import Runner
from autotune.records.session import Session, session_of
from autotune.records.session_settings import SESSION_SETTINGS
from tests.fakes.exported_models import encoder, reference
from tests.fakes.onnx_models import branching, convolutional, save

MODELS = {
    "convolutional": lambda path: save(convolutional(), path),
    "branching": lambda path: save(branching(), path),
    "encoder": encoder,
    "charlm": lambda path: reference("charlm", path),
    "bert": lambda path: reference("bert", path),
}
ROUNDING = 1e-4


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    return MODELS[request.param](tmp_path_factory.mktemp("models") / f"{request.param}.onnx")


def feed_of(model):
    shapes = [f"--shape={name}=16" for name in read_model(model).symbols]
    return make_feeds(read_model(model), read_shapes(shapes), 2)[0]


def values_of(setting):
    return [value for value in range(len(setting.texts) or 3) if value != setting.default]


# Those of GPUs are in test_gpu.py.
OF_CPUS = [one for one in SESSION_SETTINGS if one.on != "cuda"]


@pytest.mark.parametrize("setting", OF_CPUS, ids=lambda one: one.name)
def test_a_setting_is_in_force_and_the_outputs_stay(model, setting):
    if setting.part == "malloc":
        pytest.skip("it is one for the process that the tests run in; see test_in_force.py")
    feed = feed_of(model)
    own = Runner(model, Session()).run(feed)
    for value in values_of(setting):
        runner = Runner(model, session_of([(setting, str(value))]))
        options = runner.session.get_session_options()
        if setting.part == "options":
            made = getattr(options, setting.key)
            assert getattr(made, "name", made) == setting.text(str(value))
        elif setting.part == "config":
            assert options.get_session_config_entry(setting.key) == setting.text(str(value))
        elif setting.part == "arena":
            assert options.get_session_config_entry("session.use_env_allocators") == "1"
        for _ in range(2):
            for plain, other in zip(own, runner.run(feed), strict=True):
                assert np.abs(plain - other).max() <= ROUNDING * np.abs(plain).max()


def test_each_level_of_optimization_runs_no_more_operators_than_the_one_below(model):
    feed = feed_of(model)
    (setting,) = (one for one in SESSION_SETTINGS if one.name == "optimization")
    # Above that, layouts are changed, which takes operators of its own.
    ran = [len(_nodes(model, Session(options={setting.key: text}), feed, 1)) for text in setting.texts[:3]]
    assert all(more >= fewer > 0 for more, fewer in itertools.pairwise(ran))
