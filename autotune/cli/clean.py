"""`autotune clean`"""

from __future__ import annotations

from ..errors import RunError
from .command import make_app, print_json
from .options import DryRunOption, JsonOption


def clean(dry_run: DryRunOption = False, json: JsonOption = False) -> None:
    """Remove the compile caches of the studies in this folder. Results, logs and the database stay.

    A study that goes on compiles anew. A cache that a run is using stays.
    """
    from ..launch.caches import remove_caches
    from ..records.units import format_bytes
    from .places import caches_of_studies
    from .tables import make_console, print_rows

    found = {}
    for study, folder in caches_of_studies().items():
        try:
            found[study] = remove_caches(folder, dry_run=dry_run)
        except OSError as error:
            raise RunError(
                f"the caches in {str(folder)!r} could not be removed: {error.strerror}",
                hint="remove that folder as the user who made it",
            ) from None
    if json:
        rows = [{"study": study, "freed_bytes": freed, "used_bytes": used} for study, (freed, used) in found.items()]
        print_json(rows)
        return
    console = make_console(stderr=False)
    freed_bytes, used_bytes = (sum(one[place] for one in found.values()) for place in (0, 1))
    if freed_bytes:
        would = "would be removed" if dry_run else "removed"
        print_rows(console, [(study, f"{format_bytes(freed)} {would}") for study, (freed, _) in found.items() if freed])
        console.say(f"In all {format_bytes(freed_bytes)} of compile caches {would}.")
    else:
        console.say("There are no compile caches to remove.")
    if used_bytes:
        console.say(f"{format_bytes(used_bytes)} are in use, and stay: run `autotune clean` again afterwards.")


app = make_app(clean)
