"""A place of a test's own in the PostgreSQL server that the tests run with, and its users."""

from __future__ import annotations

import contextlib
import itertools
import os

import sqlalchemy as sa

from tests.needs import POSTGRESQL_URL

_NUMBERS = itertools.count()


def server_url():
    """Give the server's address; tests that ask carry the marker ``postgresql``."""
    return sa.make_url(os.environ[POSTGRESQL_URL]).set(drivername="postgresql+psycopg")


class postgresql_schema:
    """An empty schema; its URL makes it the place where tables are made and looked up."""

    def __enter__(self):
        self.engine = sa.create_engine(server_url())
        self.name = f"autotune_test_{os.getpid()}_{next(_NUMBERS)}"
        self.execute(f"CREATE SCHEMA {self.name}")
        option = {"options": f"-csearch_path={self.name}"}
        self.url = self.engine.url.update_query_dict(option).render_as_string(hide_password=False)
        return self

    def __exit__(self, *exception):
        self.execute(f"DROP SCHEMA {self.name} CASCADE")
        self.engine.dispose()

    def execute(self, statement, **values):
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"SET LOCAL search_path TO {self.name}"))
            result = connection.execute(sa.text(statement), values)
            return [tuple(row) for row in result] if result.returns_rows else []

    def tables(self):
        return sa.inspect(self.engine).get_table_names(schema=self.name)

    @contextlib.contextmanager
    def reader(self):
        """The URL of a user who may read the tables that are there by now, and nothing else."""
        name = f"somebody_{os.getpid()}_{next(_NUMBERS)}"
        self.execute(f"CREATE ROLE {name} LOGIN")
        self.execute(f"GRANT USAGE ON SCHEMA {self.name} TO {name}")
        self.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {self.name} TO {name}")
        try:
            yield sa.make_url(self.url).set(username=name).render_as_string(hide_password=False)
        finally:
            self.execute(f"DROP OWNED BY {name}")
            self.execute(f"DROP ROLE {name}")
