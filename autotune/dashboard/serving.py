"""The server: an application on an address of this machine."""

from __future__ import annotations

import errno
import ipaddress
import socket

from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from ..errors import UsageError

DEFAULT_PORT = 8421
_TRIED = 20  # ports after the default one, where that is taken


def is_this_machine(host: str) -> bool:
    """Return whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        """Print no line for each request."""


class Server:
    """Listens from when it is made; UsageError where the address is not this machine's, or the port is taken.

    ``port`` 0 is any that is free, None the default one or one of those after it.
    """

    def __init__(self, app: Flask, *, host: str, port: int | None) -> None:
        with _listen(host, port) as listening:
            self.port = int(listening.getsockname()[1])
            descriptor = listening.fileno()  # of which the server makes a copy
            self._server = make_server(host, self.port, app, threaded=True, request_handler=_Quiet, fd=descriptor)
        shown = f"[{host}]" if ":" in host else host
        self.address = f"http://{shown}:{self.port}/"

    def run(self) -> None:
        """Answer until ``close``, or until Ctrl-C."""
        self._server.serve_forever()

    def close(self) -> None:
        """Have ``run``, which another thread is in, come to its end."""
        self._server.shutdown()


def _listen(host: str, port: int | None) -> socket.socket:
    ports = range(DEFAULT_PORT, DEFAULT_PORT + _TRIED) if port is None else (port,)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in ports:
        try:
            return socket.create_server((host, number), family=family)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and number != ports[-1]:
                continue
            raise UsageError(
                f"cannot listen at {host}, port {number}: {error.strerror or error}",
                hint="choose another one: --port N, or --port 0 for any that is free",
            ) from None
    raise AssertionError("there is a port to try")
