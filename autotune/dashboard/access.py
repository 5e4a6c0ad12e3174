"""Access control of the dashboard: it answers requests of its own pages, from this machine or with the token.

A page from anywhere can have its reader's browser ask this server. So a server without a token, which listens to this
machine only, answers to names of this machine only. Another name that leads here is somebody else's (DNS rebinding).
With a token every request needs it. A request that comes from another page, as the browser says, is refused in any
case, but for a link that somebody follows. Nothing can be changed from outside: only GET and HEAD are answered.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlencode, urlsplit

from flask import Flask, Request, Response, request

_COOKIE = "autotune_token"
_OWN_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
    "Cache-Control": "no-store",
    # Bars have their width in a style attribute.
    "Content-Security-Policy": "default-src 'none'; img-src data:; script-src 'self'; "
    "style-src 'self' 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def put_door(app: Flask, *, token: str = "") -> None:
    """Have an application refuse others' requests; with a ``token``, those without it as ``?token=`` or as a bearer."""

    @app.before_request
    def let_in() -> Response | None:
        return _refusal(request, token) or _welcome(request, token)

    @app.after_request
    def add_headers(response: Response) -> Response:
        response.headers.update(_HEADERS)
        return response


def _refusal(request: Request, token: str) -> Response | None:
    if request.method not in ("GET", "HEAD"):
        return _refused(405, "The dashboard only reads: nothing can be changed here.", Allow="GET, HEAD")
    if not token and _host_of(request) not in _OWN_NAMES:
        return _refused(
            403,
            f"This dashboard answers to localhost, not to {_host_of(request)!r}. To reach it from other machines: "
            "autotune dashboard --host ADDRESS, which asks for a token.",
        )
    if _is_foreign(request):
        return _refused(403, "Another page asked for this. Open the dashboard's own address.")
    if token and not _has_token(request, token):
        return _refused(401, "Open the address that autotune dashboard has printed: it contains a token.")
    return None


def _has_token(request: Request, token: str) -> bool:
    bearer = request.authorization.token if request.authorization is not None else None
    shown = (request.args.get("token"), request.cookies.get(_COOKIE), bearer)
    return any(hmac.compare_digest((one or "").encode(), token.encode()) for one in shown)


def _welcome(request: Request, token: str) -> Response | None:
    """Take the token out of the address, where histories and screenshots keep it."""
    if not token or "token" not in request.args:
        return None
    rest = [(name, value) for name, value in request.args.items(multi=True) if name != "token"]
    address = request.path + (f"?{urlencode(rest)}" if rest else "")
    response = Response(status=303, headers={"Location": address})
    response.set_cookie(_COOKIE, token, httponly=True, samesite="Strict")
    return response


def _host_of(request: Request) -> str:
    try:
        return (urlsplit(f"//{request.host}").hostname or "").rstrip(".")
    except ValueError:
        return request.host


def _is_foreign(request: Request) -> bool:
    """Return whether a browser says that a page of somebody else's asks."""
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"{request.scheme}://{request.host}":
        return True
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    follows_link = (
        request.headers.get("Sec-Fetch-Mode") == "navigate" and request.headers.get("Sec-Fetch-Dest") == "document"
    )
    return site not in ("same-origin", "none") and not follows_link


def _refused(status: int, told: str, **headers: str) -> Response:
    return Response(f"{told}\n", status=status, headers=headers, mimetype="text/plain")
