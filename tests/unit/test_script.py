"""Being ``python train.py arguments``: what the script sees of itself, and what it leaves behind."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
import traceback
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune.records.codec import dumps
from autotune.records.configuration import Configuration
from autotune.records.run import Request
from autotune.worker.script import own_traceback

pytestmark = pytest.mark.process

_WORKER = Path(autotune.__file__).parent / "worker" / "__main__.py"


def write(folder: Path, name: str, source: str) -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(source).lstrip(), encoding="utf-8")
    return path


def both_ways(
    script: Path, *arguments: str, cwd: Path, module: str = ""
) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """Run a script by plain Python, and launched by the worker without any plan."""
    run = Path(tempfile.mkdtemp(dir=script.parent.parent))
    request = Request("launch", str(script), arguments, (Configuration(),), module=module)
    (run / "request.json").write_text(dumps(request))
    named = ["-m", module] if module else [str(script)]
    commands = [sys.executable, *named, *arguments], [sys.executable, "-P", str(_WORKER), str(run)]
    plain, hosted = (
        subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False)
        for command in commands
    )
    return plain, hosted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    return path


def test_the_script_sees_itself_as_plain_python_shows_it(folder: Path, tmp_path: Path) -> None:
    write(folder, "sibling.py", "NAME = __name__")
    script = write(
        folder,
        "train.py",
        """
        '''Its docstring.'''
        import json, os, sys
        import sibling
        answer: int = 42
        print(json.dumps({
            "name": __name__, "file": __file__, "doc": __doc__, "package": __package__, "spec": repr(__spec__),
            "cached": globals().get("__cached__"), "builtins": type(__builtins__).__name__,
            "loader": type(__loader__).__name__, "annotations": sorted(__annotations__),
            "argv": sys.argv, "path": sys.path[0], "main": vars(sys.modules["__main__"]) is globals(),
            "sibling": sibling.NAME, "globals": sorted(globals()),
        }))
        """,
    )
    plain, hosted = both_ways(script, "--lr", "0.1", "a b", cwd=tmp_path)
    assert plain.returncode == hosted.returncode == 0, hosted.stderr
    assert json.loads(hosted.stdout) == json.loads(plain.stdout)


@pytest.mark.parametrize(("name", "module"), [("train", "project.train"), ("__main__", "project")])
def test_a_module_sees_itself_as_python_m_shows_it(name: str, module: str, folder: Path, tmp_path: Path) -> None:
    write(folder, "__init__.py", "import sys; ARGUMENTS = list(sys.argv)")
    write(folder, "sibling.py", "NAME = __name__")
    script = write(
        folder,
        f"{name}.py",
        """
        '''Its docstring.'''
        import json, pickle, sys
        from . import ARGUMENTS, sibling
        class Options: ...
        print(json.dumps({
            "name": __name__, "file": __file__, "doc": __doc__, "package": __package__, "cached": __cached__,
            "spec": [__spec__.name, __spec__.parent, __spec__.origin],
            "builtins": type(__builtins__).__name__, "loader": repr(type(__loader__)),
            "argv": sys.argv, "path": sys.path[0], "main": vars(sys.modules["__main__"]) is globals(),
            "sibling": sibling.NAME, "while imported": ARGUMENTS, "pickled": pickle.dumps(Options()).hex(),
            "globals": sorted(globals()),
        }))
        """,
    )
    plain, hosted = both_ways(script, "--lr", "0.1", cwd=tmp_path, module=module)
    assert plain.returncode == hosted.returncode == 0, hosted.stderr
    assert json.loads(hosted.stdout) == json.loads(plain.stdout)


def test_processes_that_a_module_starts_import_it_again_by_its_name(folder: Path, tmp_path: Path) -> None:
    write(folder, "sibling.py", "def square(x): return x * x")
    script = write(
        folder,
        "train.py",
        """
        import multiprocessing
        from .sibling import square
        def above(x):
            return square(x) + 1
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(above, [2, 3]))
        """,
    )
    plain, hosted = both_ways(script, cwd=tmp_path, module="project.train")
    assert plain.stdout == "[5, 10]\n"
    assert hosted.stdout == plain.stdout, hosted.stderr


def test_the_scripts_future_imports_are_its_own(folder: Path) -> None:
    # Without `from __future__ import annotations` the annotation is evaluated, and is the class itself.
    script = write(
        folder,
        "train.py",
        """
        class Batch: ...
        def f(batch: Batch) -> None: ...
        print(f.__annotations__["batch"] is Batch)
        """,
    )
    plain, hosted = both_ways(script, cwd=folder)
    assert (plain.stdout, hosted.stdout) == ("True\n", "True\n")


def test_dataclasses_and_pickles_find_their_module(folder: Path) -> None:
    script = write(
        folder,
        "train.py",
        """
        from __future__ import annotations
        import dataclasses, pickle, typing
        @dataclasses.dataclass
        class Options:
            rate: float = 0.1
            known: typing.ClassVar[int] = 3
        print(pickle.loads(pickle.dumps(Options(0.2))), typing.get_type_hints(Options)["rate"])
        """,
    )
    plain, hosted = both_ways(script, cwd=folder)
    assert plain.returncode == 0
    assert hosted.stdout == plain.stdout


def test_processes_of_its_own_import_it_again(folder: Path) -> None:
    script = write(
        folder,
        "train.py",
        """
        import multiprocessing
        def square(x):
            return x * x
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(square, [2, 3]))
        """,
    )
    plain, hosted = both_ways(script, cwd=folder)
    assert plain.stdout == "[4, 9]\n"
    assert hosted.stdout == plain.stdout, hosted.stderr


def test_a_folder_that_is_reached_through_a_link_is_the_real_one(folder: Path, tmp_path: Path) -> None:
    write(folder, "sibling.py", "NAME = 'beside the real file'")
    script = write(folder, "train.py", "import sibling, sys; print(sibling.NAME, sys.path[0], __file__)")
    link = tmp_path / "link.py"
    link.symlink_to(script)
    plain, hosted = both_ways(link, cwd=tmp_path)
    assert plain.returncode == 0
    assert hosted.stdout == plain.stdout


def test_another_encoding_is_read_as_python_reads_it(folder: Path) -> None:
    script = folder / "train.py"
    script.write_bytes("# -*- coding: latin-1 -*-\nprint(len('é'), ascii('é'))\n".encode("latin-1"))
    plain, hosted = both_ways(script, cwd=folder)
    assert plain.returncode == 0
    assert hosted.stdout == plain.stdout


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    raise ValueError('inside')\nf()\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise RuntimeError('outer') from error\n",
        "x = (1,\n",
        "import json\njson.loads('{')\n",
        "raise ExceptionGroup('several', [ValueError('one'), TypeError('two')])\n",
    ],
)
def test_a_traceback_is_the_one_that_plain_python_shows(source: str, folder: Path) -> None:
    script = folder / "train.py"
    script.write_text(source)
    plain, hosted = both_ways(script, cwd=folder)
    assert plain.returncode == hosted.returncode == 1
    assert hosted.stderr == plain.stderr


def test_a_hook_that_a_signal_interrupts_is_not_in_the_traceback_of_the_handler() -> None:
    hook = Path(autotune.__file__).with_name("files") / "backup.py"
    names: dict[str, Any] = {}
    exec(compile("def heard(handler):\n    handler()", hook, "exec"), names)

    def handler() -> None:
        raise RuntimeError("a worker was killed")

    with pytest.raises(RuntimeError) as raised:
        names["heard"](handler)
    assert "backup.py" in "".join(traceback.format_exception(raised.value))

    shown = own_traceback(raised.value)

    assert "in handler" in shown
    assert "backup.py" not in shown


@pytest.mark.parametrize(("ending", "status"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('no data')", 1)])
def test_an_exit_is_the_scripts_own(ending: str, status: int, folder: Path) -> None:
    script = write(folder, "train.py", f"import sys\nprint('before')\n{ending}\n")
    plain, hosted = both_ways(script, cwd=folder)
    assert plain.returncode == hosted.returncode == status
    assert (hosted.stdout, hosted.stderr) == (plain.stdout, plain.stderr)
