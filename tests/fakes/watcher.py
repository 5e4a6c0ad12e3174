"""A watcher that remembers what it was told, in order."""

from __future__ import annotations


class FakeWatcher:
    """``said`` holds the names of what happened; ``trials`` and ``repetitions`` what was stored."""

    def __init__(self):
        self.said = []
        self.trials = []
        self.repetitions = []
        self.proofs = []
        self.compiled_runs = []
        self.reason = ""
        self.plans_given = None
        self.forecasts = []

    def discovering(self):
        self.said.append("discovering")

    def discovered(self, facts, baseline, limit_bytes):
        self.said.append("discovered")

    def given(self, plans):
        self.said.append("given")
        self.plans_given = plans

    def searching(self, space):
        self.said.append("searching")
        self.space = space

    def run_began(self, devices, configurations):
        self.said.append("run")

    def forecast(self, most_s):
        self.forecasts.append(most_s)

    def event(self, devices, event):
        pass

    def trial_ended(self, number, configuration, outcome):
        self.trials.append((number, configuration, outcome))

    def search_ended(self, reason):
        self.said.append("search ended")
        self.reason = reason

    def widened(self, choice, idle):
        self.said.append(f"goes on with {choice}")
        self.idle = idle

    def searching_again(self):
        self.said.append("searching again")

    def repeating(self, configurations, num_runs):
        self.said.append("finalists")

    def no_time(self, needed_s):
        self.said.append("no time")
        self.needed_s = needed_s

    def repeated(self, configuration, repetition_number, outcome):
        self.repetitions.append((repetition_number, configuration))

    def proving(self, configuration):
        self.said.append("proof")

    def compiling(self, configuration):
        self.said.append("compiling")

    def compiled(self, configuration, outcome, *, reason):
        self.compiled_runs.append((configuration, outcome, reason))

    def proved(self, proof):
        self.proofs.append(proof)
