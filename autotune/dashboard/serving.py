"""The server: an application on an address of this machine."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication


DEFAULT_PORT = 8421
_TRIED = 20  # ports after the default one, where that is taken
_THREADS = 8


def is_this_machine(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Server:
    """Listens from when it is made.

    Args:
        app: Who answers.
        host: The address to listen at.
        port: The port; 0 is any that is free, None the default one or one of those after it.

    Raises:
        UsageError: The address is not this machine's, or the port is taken.
    """

    def __init__(self, app: WSGIApplication, *, host: str, port: int | None) -> None:
        from cheroot.wsgi import Server as WSGIServer

        ports = range(DEFAULT_PORT, DEFAULT_PORT + _TRIED) if port is None else (port,)
        number = next((one for one in ports[:-1] if not _is_taken(host, one)), ports[-1])
        self._server = WSGIServer((host, number), app, numthreads=_THREADS, server_name="autotune")
        try:
            _try(host, number)
            self._server.prepare()
        except OSError as error:
            raise UsageError(
                f"cannot listen at {host}, port {number}: {error.strerror or error}",
                hint="choose another one: --port N, or --port 0 for any that is free",
            ) from None
        self.port = int(self._server.bind_addr[1])
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/"

    def run(self) -> None:
        """Answer until ``close``, or until Ctrl-C."""
        self._server.serve()

    def close(self) -> None:
        """Stop listening, and end all connections."""
        self._server.stop()


def _is_taken(host: str, port: int) -> bool:
    try:
        _try(host, port)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def _try(host: str, port: int) -> None:
    """OSError, with the system's words, if nobody can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family):
        pass
