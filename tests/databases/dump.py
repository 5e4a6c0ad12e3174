"""Write a database of studies as text, without the names of where it was made: see README.md."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from contextlib import closing

FOLDER = "/home/user/project"


def main() -> None:
    """Print the dump of the file that is named."""
    with closing(sqlite3.connect(sys.argv[1])) as connection:
        text = "\n".join(connection.iterdump())
        specs = [json.loads(spec) for (spec,) in connection.execute("SELECT spec FROM autotune_study")]
        found = connection.execute("SELECT environment FROM autotune_environment").fetchall()
        owners = connection.execute("SELECT machine FROM autotune_owner").fetchall()
    environments = [json.loads(environment) for (environment,) in found]
    for spec in specs:
        text = text.replace(spec["working_directory"] or spec["script"].rpartition("/")[0], FOLDER)
        text = text.replace(spec["python"], "/usr/bin/python3")
    for environment in environments:
        text = text.replace(f'"hostname":"{environment["hostname"]}"', '"hostname":"workstation"')
        text = text.replace(environment["platform"], "Linux-6.1-x86_64")
    for (machine,) in owners:
        text = re.sub(
            rf"'{re.escape(machine)}','[^']*'", "'00000000-0000-0000-0000-000000000000 pid:[1]','workstation'", text
        )
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
