"""HTTP requests for downloads, with failures as sentences.

The standard library follows redirects and reads the proxy from the environment; no package is needed for that.
"""

from __future__ import annotations

import http.client
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from captioner import __version__
from captioner.errors import CaptionerError, UsageError

TIMEOUT = 30.0  # seconds without any byte before a connection counts as broken
_PASSING = {408, 425, 429, 500, 502, 503, 504}  # statuses that may be gone at the next attempt


class DownloadError(CaptionerError):
    """A download failed for good. What was fetched is kept."""


class PassingError(Exception):
    """A failure that may be gone at the next attempt; `wait` is how long the server asks to wait, in seconds."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class RangeError(Exception):
    """The server has no such range (status 416); `size` is the size of its file, None if it does not tell."""

    def __init__(self, message: str, size: int | None = None) -> None:
        super().__init__(message)
        self.size = size


def check_url(url: str, setting: str) -> str:
    """The URL, if it is one of http or https with a host."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{setting}: {url} is not an address that starts with http:// or https://")
    return url


@contextmanager
def opened(url: str, headers: Mapping[str, str] | None = None) -> Iterator[http.client.HTTPResponse]:
    """The answer to a GET request. Every failure, also while it is read, is one of the exceptions of this module."""
    request = urllib.request.Request(
        url, headers={"User-Agent": f"captioner/{__version__}", "Accept-Encoding": "identity", **(headers or {})}
    )
    try:
        with _opener().open(request, timeout=TIMEOUT) as response:
            yield response
    except urllib.error.HTTPError as error:
        with error:
            raise _of_status(url, error) from None
    except urllib.error.URLError as error:
        raise _of_connection(url, error.reason) from None
    except (http.client.HTTPException, ConnectionError, TimeoutError, socket.gaierror) as error:
        raise _of_connection(url, error) from None


def _opener() -> urllib.request.OpenerDirector:
    """An opener for http and https only: urllib's own would also follow ftp: and open file:."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _of_status(url: str, error: urllib.error.HTTPError) -> Exception:
    answer = f"{url}: the server answers {error.code} {error.reason}"
    if error.code == 416:
        size = error.headers.get("Content-Range", "").removeprefix("bytes */")
        return RangeError(answer, int(size) if size.isdigit() else None)
    if error.code in _PASSING:
        asked = error.headers.get("Retry-After", "")
        return PassingError(answer, float(asked) if asked.isdigit() else 0.0)
    if error.code == 407:
        return DownloadError(
            f"{_proxy_of(url)} asks for a login: put it into the address, http://USER:PASSWORD@HOST:PORT"
        )
    if error.code in (404, 410):
        return DownloadError(f"{answer}: the file is not there any more; give another address with --base-url")
    return DownloadError(answer + _through_proxy(url))


def _of_connection(url: str, reason: object) -> Exception:
    """A connection that could not be made or broke. A host that does not exist, or a certificate, stays as it is."""
    text = f"{url}: {_in_words(reason)}{_through_proxy(url)}"
    if "407" in str(reason):  # the tunnel to an https server
        return DownloadError(
            f"{_proxy_of(url)} asks for a login: put it into the address, http://USER:PASSWORD@HOST:PORT"
        )
    if isinstance(reason, socket.gaierror) or "CERTIFICATE" in str(reason) or "unknown url type" in str(reason):
        return DownloadError(text)
    return PassingError(text)


def _in_words(reason: object) -> str:
    if isinstance(reason, TimeoutError):
        return f"no answer for {TIMEOUT:.0f} seconds"
    if isinstance(reason, socket.gaierror):
        return f"the host is not found ({reason.strerror}); is there a network?"
    if isinstance(reason, ConnectionRefusedError):
        return "the connection is refused"
    if isinstance(reason, (ConnectionError, http.client.HTTPException)):
        return f"the connection broke ({type(reason).__name__})"
    return str(reason)


def _proxy_of(url: str) -> str:
    """The proxy for a URL, without its password; an empty string where there is none."""
    parts = urllib.parse.urlsplit(url)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    proxy = urllib.request.getproxies().get(parts.scheme, "")
    return f"the proxy {proxy.rpartition('@')[2].removeprefix('http://')}" if proxy else ""


def _through_proxy(url: str) -> str:
    proxy = _proxy_of(url)
    return f" (through {proxy}, which {urllib.parse.urlsplit(url).scheme}_proxy names)" if proxy else ""
