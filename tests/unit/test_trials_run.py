"""The reference studies' own script."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from tests.fakes.study_record import study_record

PATH = Path(__file__).resolve().parents[2] / "trials/run.py"


def load():
    spec = importlib.util.spec_from_file_location("reference_studies", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_record_has_raw_samples_and_environment_and_nothing_of_the_machine_besides(tmp_path):
    study = study_record()
    path = load().write_record(study, "charlm", tmp_path)
    text = path.read_text()
    document = json.loads(text)
    device = study.facts.environment.device_name
    assert path.parent.name == device.lower().replace(" ", "-")
    assert document["facts"]["environment"]["device_name"] == device
    measured = [trial for trial in study.trials if trial.measured]
    assert measured
    outcomes = [trial["outcome"] for trial in document["trials"] if trial["outcome"]]
    samples = [outcome["measurement"]["step_times_s"] for outcome in outcomes if "measurement" in outcome]
    assert [list(trial.measured.measurement.step_times_s) for trial in measured] == samples
    assert len(document["repeats"]) == len(study.repeats)
    assert study.facts.environment.hostname not in text
    assert str(Path(study.spec.script).parent) not in text
    assert all(trial.run_directory not in text for trial in study.trials if trial.run_directory)
