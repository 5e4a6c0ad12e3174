"""Files of the page and its styles: beside the package in a checkout, inside it in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "dashboards", _PACKAGE.parent / "dashboards")


def folder_of(name: str) -> Path:
    """The folder that has this file of ``dashboards/``."""
    folder = next((folder for folder in _FOLDERS if (folder / name).is_file()), None)
    assert folder is not None, f"{name} is not in {_FOLDERS}: the wheel was built without dashboards/"
    return folder


def read_asset(name: str) -> str:
    """Read one file of ``dashboards/``."""
    return (folder_of(name) / name).read_text(encoding="utf-8")
