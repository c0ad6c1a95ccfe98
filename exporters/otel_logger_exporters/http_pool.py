"""urllib3's pool of connections, with connections that our dialler makes: within a deadline, to any address."""

import socket
from functools import partial
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from otel_logger_exporters.dialler import Dialler
from otel_logger_exporters.endpoints import Endpoint
from otel_logger_exporters.tls import client_context, proxy_context

__all__ = ["open_pool"]


class _Connection(HTTPConnection):
    def __init__(self, *args: Any, dialler: Dialler, **options: Any) -> None:
        super().__init__(*args, **options)
        self._dialler = dialler

    def _new_conn(self) -> socket.socket:
        # Not `host`, which has lost the dot of a name that is not to be searched for in other domains.
        return self._dialler.dial(self._dns_host, self.port)


class _TlsConnection(HTTPSConnection):
    def __init__(self, *args: Any, dialler: Dialler, **options: Any) -> None:
        super().__init__(*args, **options)
        self._dialler = dialler

    def _new_conn(self) -> socket.socket:
        return self._dialler.dial(self._dns_host, self.port)


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


def open_pool(endpoint: Endpoint, dialler: Dialler) -> urllib3.PoolManager:
    """Return a pool of one connection to an endpoint, through its proxy if it has one.

    Raises OSError or ValueError when a certificate file has changed and is no good now.
    """
    options: dict[str, Any] = {"num_pools": 1, "maxsize": 1}
    if not endpoint.insecure:
        options["ssl_context"] = client_context(endpoint, dialler.deadline)
    pool: urllib3.PoolManager
    if (proxy := endpoint.proxy) is None:
        pool = urllib3.PoolManager(**options)
    else:
        if proxy.authorization is not None:
            options["proxy_headers"] = {"proxy-authorization": proxy.authorization}
        if proxy.scheme == "https":
            options["proxy_ssl_context"] = proxy_context(dialler.deadline)
        pool = urllib3.ProxyManager(proxy.url, **options)
    classes: Any = {"http": partial(_Pool, dialler=dialler), "https": partial(_TlsPool, dialler=dialler)}
    pool.pool_classes_by_scheme = classes
    return pool
