"""What Grafana makes of a dashboard's query before PostgreSQL gets it.

Source: ``public/app/features/templating`` for variables, ``pkg/tsdb/grafana-postgresql-datasource/macros.go`` for
macros, as of Grafana 12. Only what our dashboard may use is known; anything else fails here.
"""

from __future__ import annotations

import datetime as dt
import re

__all__ = ["as_sent"]

_VARIABLE = re.compile(r"\$(\w+)|\[\[(\w+?)(?::(\w+))?\]\]|\$\{(\w+)(?:\.([^:^}]+))?(?::([^}]+))?\}")
# Its arguments end at the first closing parenthesis: a call within them is cut in two.
_MACRO = re.compile(r"\$([_a-zA-Z0-9]+)\(([^)]*)\)")


def as_sent(sql, variables, *, begin, end):
    """The statement, for a time range in seconds since the epoch; ``variables`` are the values by their names."""

    def value(match):
        name = match[1] or match[2] or match[4]
        if name not in variables:
            return match[0]  # a macro
        form = match[3] or match[6]
        if form not in (None, "sqlstring"):
            raise ValueError(f"unknown format {form!r}")
        text = variables[name].replace("'", "''")
        # The data source itself doubles quotes, and puts none around.
        return text if form is None else f"'{text}'"

    def macro(match):
        name, arguments = match[1], [argument.strip() for argument in match[2].split(",")]
        if name == "__unixEpochFilter":
            return f"{arguments[0]} >= {int(begin)} AND {arguments[0]} <= {int(end)}"
        if name == "__timeFilter":
            return f"{arguments[0]} BETWEEN '{_instant(begin)}' AND '{_instant(end)}'"
        raise ValueError(f"unknown macro {name!r}")

    return _MACRO.sub(macro, _VARIABLE.sub(value, sql))


def _instant(time_s):
    return dt.datetime.fromtimestamp(time_s, dt.UTC).isoformat().replace("+00:00", "Z")
