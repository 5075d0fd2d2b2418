"""The proxy that the environment names; httpx asks it only for transports of its own."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_for(url: str) -> str | None:
    """Return the address of the proxy for `url`, None if there is none."""
    parts = urlsplit(url)
    proxies: dict[str, Any] = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
