"""A setting as a file that works without autotune: located, written as a draft, measured and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

from ..errors import ExportError
from ..export.exporters import Exporter, express
from ..export.expressing import Expressed
from ..export.heading import Shown, heading_of
from ..launch.port import Launcher, RunResult
from ..launch.requests import locate_request, repetition_request
from ..records.configuration import Configuration
from ..records.environment import Environment
from ..records.facts import Facts, Located
from ..records.figures import summary_of
from ..records.measurement import Measurement
from ..records.outcome import Measured, Outcome
from ..records.printable import first_line, shell_word
from ..records.proof import Proof
from ..records.run import Request, Verifying
from ..records.study import StudyRecord
from ..records.units import format_bytes
from ..records.words import setting_words
from ..verdict.repetitions import order_of_repetition
from .budget import Interruption
from .context import proof_request, run_first, unused
from .proving import prove

_FILE = "file"


@dataclass(frozen=True)
class ExportedFile:
    """A file that was measured and checked: its contents, what it says, and its figures."""

    text: str
    said: Expressed
    shown: Shown


@dataclass
class FileExport:
    """Write one setting of a study as a file that works without autotune.

    ``path`` is where it will be written, for commands in hints. ``told`` is called with each run as it starts, and with
    its outcome.
    """

    record: StudyRecord
    exporter: Exporter
    path: Path
    _: KW_ONLY
    limit_bytes: int
    launcher: Launcher
    interruption: Interruption
    runs: Path
    told: Callable[[str, Outcome | None], None]

    @property
    def _facts(self) -> Facts:
        assert self.record.facts is not None, "a study without facts has no setting"
        return self.record.facts

    def write(self, configuration: Configuration, *, nearest: bool, repetitions: int) -> ExportedFile | None:
        """Write a setting as a file's text; return None if interrupted.

        Raises:
            ExportError: the setting cannot be written so, or the file failed or was not proven.
            UsageError: nothing of this kind can be written for this script.
        """
        located = self._locate()
        if located is None:
            return None
        said = express(self.exporter, configuration, self._facts, located)
        if said.refusals and (not nearest or self._is_the_script(said)):
            raise self._refused(configuration, said)
        measured = self._measure(configuration, said, located, repetitions)
        if measured is None:
            return None
        figures, environment = measured
        found = {name: summary_of(ones) for name, ones in figures.items() if ones}
        peak = found[_FILE].peaks.fit_bytes or 0
        if peak > self.limit_bytes:
            raise ExportError(
                f"the file peaks at {format_bytes(peak)}, over the limit of {format_bytes(self.limit_bytes)}: in "
                "eager mode more memory is in use at once than in the engine's order",
                hint="export a trial that needs less by its number with --trial; `autotune launch` runs the setting",
            )
        proof = self._prove(said, located)
        if proof is None:
            return None
        if not proof.holds:
            verdict = "does not compute" if proof.answer == "inexact" else "was not shown to compute"
            raise ExportError(
                f"the file {verdict} what the script computes, so it was not written: {proof.statement}",
                hint="`autotune launch` runs the setting without a file, and `autotune verify` compares it",
            )
        shown = Shown(found.get("script"), found.get("setting"), found[_FILE], proof, self.limit_bytes, environment)
        text = self.exporter.render(said, heading_of(self.record, said, shown), located)
        return ExportedFile(text, said, shown)

    def _refused(self, configuration: Configuration, said: Expressed) -> ExportError:
        what = setting_words(configuration, self._facts.clusters)
        if self._is_the_script(said):
            return ExportError(
                f"{what} cannot be written so, nor anything near it: {'; '.join(said.reasons)}",
                hint="`autotune launch` runs the setting; --trial N names another one",
            )
        near = setting_words(said.configuration, self._facts.clusters)
        plans = said.configuration.recomputed
        study, kind = shell_word(self.record.name), self.exporter.name
        command = f"autotune export {study} --as {kind}{self._trial(configuration)}"
        output = "" if self.path == Path(self.exporter.file_name) else f" --output {shell_word(str(self.path))}"
        return ExportError(
            f"{what} cannot be written so: {'; '.join(said.reasons)}",
            hint=f"the nearest that can: {near}{f' ({plans})' if plans else ''}. To measure, check and write it: "
            f"`{command} --nearest{output}`",
        )

    def _is_the_script(self, said: Expressed) -> bool:
        return not said.blocks and said.as_run.key == self._facts.baseline.key

    def _trial(self, configuration: Configuration) -> str:
        """Return the option that names the setting; empty for the study's answer."""
        verdict = self.record.verdict
        if verdict and verdict.winner and verdict.winner.key == configuration.key:
            return ""
        shown = (one.number for one in self.record.shown if one.configuration.key == configuration.key)
        return "".join(f" --trial {number}" for number in [*shown][:1])

    def _draft(self, said: Expressed, located: Located, batch_size: int | None) -> str:
        """Write the file without figures, for a run at a batch size; return its path."""
        configuration = said.configuration
        accumulation = configuration.accumulation if batch_size == configuration.batch_size else 0
        one = replace(said, configuration=replace(configuration, batch_size=batch_size, accumulation=accumulation))
        text = self.exporter.render(one, heading_of(self.record, one, None), located)
        path = unused(self.runs / "draft") / "draft.py"
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ExportError(
                f"the draft could not be written to {str(path)!r}: {error.strerror}", hint="make room there"
            ) from error
        return str(path.absolute())

    def _run(self, name: str, words: str, request: Request) -> RunResult | None:
        if self.interruption.finish.is_set():
            return None
        self.told(words, None)
        result = run_first(self.launcher, self.record.spec, request, self.runs / name, self.interruption.cancel)
        outcome = result.outcomes[0]
        stopped = self.interruption.cancel.is_set() if outcome is None else self.interruption.explains(outcome)
        return None if stopped else result

    def _locate(self) -> Located | None:
        request = locate_request(self.record.spec, self._facts)
        result = self._run("locate", "seeing which modules the blocks are", request)
        if result is not None and result.located is None:
            raise _failed("the script as it is", result)
        return None if result is None else result.located

    def _measure(
        self, configuration: Configuration, said: Expressed, located: Located, repetitions: int
    ) -> tuple[dict[str, list[Measurement]], Environment] | None:
        entrants = {"script": self._facts.baseline, "setting": configuration, _FILE: said.as_run}
        if configuration.is_untouched:
            del entrants["setting"]  # the script, or the file
        draft = self._draft(said, located, said.configuration.batch_size)
        figures: dict[str, list[Measurement]] = {name: [] for name in entrants}
        environment: Environment | None = None
        for number in range(repetitions):
            for name in order_of_repetition(list(entrants), number, self.record.spec.seed):
                request = repetition_request(
                    self.record.spec,
                    entrants[name],
                    batch_control=self._facts.batch_control,
                    accumulation_control=self._facts.accumulation_control,
                )
                request = replace(request, written=draft if name == _FILE else "")
                words = f"repetition {number + 1}: {_WORDS[name]}"
                result = self._run(f"repetition-{number + 1}-{name}", words, request)
                if result is None:
                    return None
                outcome = result.outcomes[0]
                self.told(words, outcome)
                if isinstance(outcome, Measured):
                    figures[name].append(outcome.measurement)
                    environment = result.environment or environment
                elif name == _FILE:
                    raise _failed("the script with the file applied", result)
        assert environment is not None, "the file was measured"
        return figures, environment

    def _prove(self, said: Expressed, located: Located) -> Proof | None:
        def start(name: str, configuration: Configuration, verifying: Verifying) -> RunResult | None:
            request = proof_request(self.record.spec, self._facts, configuration, verifying)
            if name == "proof-setting":
                request = replace(request, written=self._draft(said, located, configuration.batch_size))
            words = name.replace("-", " ").replace("setting", "file").replace("engine", "script")
            return self._run(name, words, request)

        own = self._facts.baseline.batch_size if self._facts.batch_control.how == "arguments" else None
        return prove(said.as_run, start, script_batch_size=own, max_error=0.0)


_WORDS = {"script": "the script as it is", "setting": "the setting, as `autotune launch` runs it", _FILE: "the file"}


def _failed(what: str, result: RunResult) -> ExportError:
    outcome = result.outcomes[0] or result.failure
    cause = result.reason if outcome is None or isinstance(outcome, Measured) else outcome.cause
    return ExportError(f"{what} failed: {first_line(cause)}", hint=f"its logs are in {str(result.directory)!r}")
