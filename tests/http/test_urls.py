"""URLs and credentials of the HTTP client core."""

from pathlib import Path

import pytest

from gpusteward.http.credentials import Credentials, is_token
from gpusteward.http.errors import ConfigurationFileError, InvalidRequestError
from gpusteward.http.urls import find_proxy, parse_url


def test_a_url_is_split_and_shown_without_credentials_and_query() -> None:
    url = parse_url("https://me:hush%20hush@Node-7/a/b?token=hush", allows_query=True)
    assert (url.scheme, url.host, url.port, url.target) == ("https", "node-7", 443, "/a/b?token=hush")
    assert (url.username, url.password) == ("me", "hush hush")
    assert str(url) == "https://node-7/a/b"
    assert "hush" not in repr(url)


def test_an_ipv6_address_keeps_its_brackets() -> None:
    url = parse_url("http://[fd00::1]:9090")
    assert (url.host, url.address, str(url)) == ("fd00::1", "[fd00::1]:9090", "http://[fd00::1]:9090")


@pytest.mark.parametrize(
    "text", ["", "hush", "ftp://hush", "http://", "http://hush:port", "http://[::1", "http://h?x=1"]
)
def test_an_invalid_url_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse_url(text)
    assert "hush" not in str(caught.value)


def test_the_proxy_of_the_environment_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "user:pw@proxy:3128")
    monkeypatch.setenv("no_proxy", "inside.example")
    proxy = find_proxy(parse_url("https://outside.example"))
    assert proxy is not None
    assert (proxy.address, proxy.username) == ("proxy:3128", "user")
    assert find_proxy(parse_url("https://inside.example")) is None
    assert find_proxy(parse_url("http://outside.example")) is None


def test_a_token_is_preferred_to_a_password_and_read_again_when_its_file_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    credentials = Credentials({"X-Team": "a"}, section="s", username="me", password="pw", token_file=path)
    assert credentials.headers() == {"X-Team": "a", "Authorization": "Bearer first"}
    path.write_text("second one")
    assert credentials.headers()["Authorization"] == "Bearer second one"
    path.unlink()
    with pytest.raises(ConfigurationFileError, match=r"cannot read s\.bearer_token_file"):
        credentials.headers()


def test_a_header_that_cannot_be_sent_is_named_without_its_value() -> None:
    with pytest.raises(InvalidRequestError, match=r"'X-Key' cannot be sent: check s\.headers") as caught:
        Credentials({"X-Key": "hush\n"}, section="s").headers()
    assert "hush" not in str(caught.value)


def test_a_token_is_one_word_of_printable_ascii() -> None:
    assert is_token("abc.def")
    assert not any(is_token(text) for text in ("", "a b", "文", "a\n"))
