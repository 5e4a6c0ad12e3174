"""Who is let into the dashboard, and who is not."""

from __future__ import annotations

import pytest
from flask import Flask
from werkzeug.test import Client

from autotune.dashboard.access import put_door
from autotune.dashboard.serving import is_this_machine

HERE = "http://127.0.0.1:8421"
AWAY = "http://gpu-box:8421"


def client(**settings):
    app = Flask("a test")
    app.add_url_rule("/", view_func=lambda: "inside")
    app.add_url_rule("/study", "study", lambda: "inside")
    put_door(app, **settings)
    return Client(app)


@pytest.mark.parametrize("base", [HERE, "http://localhost:9000", "http://[::1]:8421", "http://LOCALHOST"])
def test_names_of_this_machine_are_answered_to(base):
    assert client().get("/", base_url=base).text == "inside"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8421",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "gpu-box",
        "",
        "[",
        "a@b",
    ],
)
def test_any_other_name_is_refused_without_a_token(host):
    """A name of somebody else's may lead to this machine: his page would read ours."""
    answer = client().get("/", base_url=HERE, headers={"Host": host})
    assert answer.status_code == 403
    assert "inside" not in answer.text
    assert "--host ADDRESS" in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"])
@pytest.mark.parametrize("token", ["", "secret"])
def test_nothing_that_could_change_something_is_let_in(method, token):
    answer = client(token=token).open("/api/studies/1", method=method, base_url=HERE, query_string={"token": token})
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8422"},
        {"Origin": "https://127.0.0.1:8421"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_what_another_page_asks_for_is_refused(headers):
    for door in (client(), client(token="secret")):
        answer = door.get("/", base_url=HERE, headers=headers, query_string={"token": "secret"})
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": HERE},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    ],
)
def test_its_own_pages_and_links_to_it_are_let_in(headers):
    assert client().get("/", base_url=HERE, headers=headers).text == "inside"


def test_no_other_page_may_read_or_frame_what_is_inside():
    headers = client().get("/", base_url=HERE).headers
    assert "Access-Control-Allow-Origin" not in headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert client().post("/", base_url=HERE).headers["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("given", [{}, {"token": ""}, {"token": "Secret"}, {"token": "secret2"}, {"token": "s\u00e9"}])
def test_a_wrong_or_missing_token_is_refused(given):
    for base in (AWAY, HERE):
        answer = client(token="secret").get("/", base_url=base, query_string=given)
        assert answer.status_code == 401
        assert "inside" not in answer.text


def test_a_token_is_taken_out_of_the_address_and_kept_by_the_browser():
    browser = client(token="secret")
    answer = browser.get("/study", base_url=AWAY, query_string={"name": "a&b", "token": "secret"})
    assert (answer.status_code, answer.headers["Location"]) == (303, "/study?name=a%26b")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert browser.get("/study", base_url=AWAY).text == "inside"
    assert client(token="other").get("/study", base_url=AWAY, headers={"Cookie": cookie}).status_code == 401


def test_the_way_out_of_the_address_leads_to_no_other_server():
    path = {"PATH_INFO": "//evil.example/x"}
    answer = client(token="secret").get("/", base_url=AWAY, query_string={"token": "secret"}, environ_overrides=path)
    assert answer.headers["Location"] == "/evil.example/x"


def test_a_program_brings_the_token_as_a_bearer():
    door = client(token="secret")
    assert door.get("/", base_url=AWAY, headers={"Authorization": "Bearer secret"}).text == "inside"
    assert door.get("/", base_url=AWAY, headers={"Authorization": "Bearer no"}).status_code == 401
    assert door.get("/", base_url=AWAY, headers={"Authorization": "Basic c2VjcmV0"}).status_code == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_addresses_of_this_machine_only(host):
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "gpu-box", ""])
def test_addresses_that_others_can_reach(host):
    assert not is_this_machine(host)
