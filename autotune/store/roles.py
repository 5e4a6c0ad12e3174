"""Privileges in a PostgreSQL database: two roles, as SQL for the database's administrator.

The tables belong to the user that made them; only that owner creates and alters them. ``autotune_read`` looks at
studies. ``autotune_tune`` runs them too: it adds rows and changes them, and deletes none. It only reads the tables that
hold versions. All other privileges hold for every table of the schema: autotune's, Optuna's, and those that a later
version makes. So no table can be forgotten.
"""

from __future__ import annotations

import sqlalchemy as sa

from . import schema

READ, TUNE = "autotune_read", "autotune_tune"

# What says which schema the tables have, ours and Optuna's: whoever changes the tables writes these.
_VERSIONS = (schema.about.name, schema.VERSION_TABLE, "alembic_version", "version_info")

_SQL = """\
-- The roles of the studies in schema {schema}. The owner of the tables runs this, once:
--   autotune database --roles --storage URL | psql URL
-- Then give them out: GRANT {read} TO alice; GRANT {tune} TO bob;

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{read}') THEN CREATE ROLE {read} NOLOGIN; END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{tune}') THEN CREATE ROLE {tune} NOLOGIN; END IF;
END $$;

-- Only the owner makes tables. Since PostgreSQL 15 that is so from the start.
REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;
GRANT USAGE ON SCHEMA {schema} TO {read}, {tune};

-- {read}: list, show, export and report studies.
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {read}, {tune};

-- {tune}: run and resume studies and keep what gates say, too. Nothing is ever deleted.
GRANT INSERT, UPDATE ON ALL TABLES IN SCHEMA {schema} TO {tune};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {tune};
REVOKE INSERT, UPDATE ON {versions} FROM {tune};

-- The same for tables that a later version of autotune or Optuna makes.
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {read}, {tune};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT INSERT, UPDATE ON TABLES TO {tune};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT USAGE ON SEQUENCES TO {tune};
"""


def roles_sql(connection: sa.Connection) -> str:
    """The statements that make the roles, for the schema and the owner of the tables that the connection sees."""
    quote = connection.dialect.identifier_preparer.quote
    place = sa.text("SELECT schemaname, tableowner FROM pg_tables WHERE tablename = :name AND schemaname = any(:seen)")
    seen = connection.scalar(sa.text("SELECT current_schemas(false)"))
    found = connection.execute(place, {"name": schema.study.name, "seen": seen}).one()
    names = [quote(found.schemaname), quote(found.tableowner)]
    versions = ", ".join(f"{names[0]}.{table}" for table in _VERSIONS)
    return _SQL.format(schema=names[0], owner=names[1], read=READ, tune=TUNE, versions=versions)
