"""A place of a test's own in the PostgreSQL server that the tests run with, its users, and a bad line to it."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import socket
import threading

import sqlalchemy as sa

from autotune.store.opening import open_store
from tests.needs import POSTGRESQL_URL

_NUMBERS = itertools.count()
_ROLES = 0x726F6C65  # roles belong to the server, not to the schema: one test at a time makes them


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

    def prepare(self):
        """Make the tables and the roles, as the owner does by what autotune prints."""
        with open_store(self.url) as store:
            store.prepare()
            statements = store.roles_sql()
        with self.engine.begin() as connection:
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_ROLES})"))
            connection.exec_driver_sql(statements)
        return self

    @contextlib.contextmanager
    def user(self, role=None):
        """The URL of a user who has been given that role, and nothing else."""
        name = f"somebody_{os.getpid()}_{next(_NUMBERS)}"
        self.execute(f"CREATE ROLE {name} LOGIN")
        if role:
            self.execute(f"GRANT {role} TO {name}")
        try:
            yield sa.make_url(self.url).set(username=name).render_as_string(hide_password=False)
        finally:
            self.execute(f"DROP OWNED BY {name}")
            self.execute(f"DROP ROLE {name}")


class Wire:
    """A socket in front of the server, at ``url``, that cuts connections where a test says."""

    def __init__(self, url, folder):
        url = sa.make_url(url)
        there = url.query.get("host") or url.host
        port = url.port or 5432
        self._server = f"{there}/.s.PGSQL.{port}" if there.startswith("/") else (there, port)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/.s.PGSQL.{port}")
        self._listener.listen()
        self.url = url.set(host=None, query={**url.query, "host": str(folder)}).render_as_string(hide_password=False)
        self.commits = 0
        self._cut_at, self._how = 0, ""

    def cut(self, commit, how):
        """Cut off the so-manyth commit from now on, 0 for none.

        Args:
            commit: which one.
            how: ``before`` the server gets it, ``after`` it has done it and before we hear of it, or ``frozen``: the
                server takes it, and nothing ever comes back.
        """
        self.commits, self._cut_at, self._how = 0, commit, how

    def __enter__(self):
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *exception):
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._carry, args=(client,)))
                self._threads[-1].start()

    def _carry(self, client):
        with client, socket.socket(socket.AF_UNIX if isinstance(self._server, str) else socket.AF_INET) as server:
            server.connect(self._server)
            with contextlib.suppress(OSError):
                while self._pass_on(client, server):
                    pass

    def _pass_on(self, client, server):
        """Pass on what comes next; False at the end of the connection."""
        for end in select.select([client, server], [], [])[0]:
            data = end.recv(65536)
            if not data:
                return False
            if end is server:
                client.sendall(data)
                continue
            if b"COMMIT" in data:
                self.commits += 1
                if self.commits == self._cut_at:
                    if self._how == "after":
                        server.sendall(data)
                        server.recv(65536)
                    elif self._how == "frozen":
                        client.recv(65536)  # until it hangs up
                    return False
            server.sendall(data)
        return True
