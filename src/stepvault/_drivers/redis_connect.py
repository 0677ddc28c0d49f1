"""Ways to Redis: one server, Sentinel, a cluster; from a URL or from a client that the caller made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.sentinel
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from stepvault.errors import ConfigurationError

_FORMS = (
    "redis://host:6379/0, rediss://host:6379/0, unix:///path/to/socket?db=0, "
    "redis+sentinel://host:26379,host:26379/service/0 or redis+cluster://host:6379,host:6379"
)
_DEFAULTS: dict[str, Any] = {"socket_timeout": 10.0, "socket_connect_timeout": 5.0, "max_connections": 50}
_SECURE = "rediss"
_redis: Any = redis  # redis-py types some of its names only in part


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a URL leads.

    Attributes:
        kind: `server`, `sentinel` or `cluster`.
        where: The URL without its password, for messages.
        url: For one server, the URL as redis-py reads it.
        hosts: For Sentinel and Cluster, the nodes to ask first.
        service: For Sentinel, the name of the primary.
        options: Arguments of every connection.
    """

    kind: str
    where: str
    url: str = ""
    hosts: tuple[tuple[str, int], ...] = ()
    service: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def limit(self) -> int:
        """Connections per process and event loop."""
        return int(self.options["max_connections"])


def endpoint_of(url: str, arguments: dict[str, Any] | None) -> Endpoint:
    """Read a URL; what its query says wins over `arguments`, as in redis-py.

    Raises:
        ConfigurationError: It has none of the known forms.
    """
    parts = urlsplit(url)
    check_options(arguments or {})
    try:
        arguments = {**_DEFAULTS, **(arguments or {}), **_query(parts)}
        if parts.scheme in ("redis", "rediss", "unix"):
            _redis.connection.parse_url(url)
            return Endpoint("server", _without_password(parts), url, options=arguments)
        if parts.scheme in ("redis+sentinel", "rediss+sentinel"):
            return _sentinel(parts, arguments)
        if parts.scheme in ("redis+cluster", "rediss+cluster"):
            arguments = {**_common(parts), **arguments}
            return Endpoint("cluster", _without_password(parts), hosts=_hosts(parts, 6379), options=arguments)
    except ConfigurationError:
        raise
    except ValueError as exc:
        raise ConfigurationError(f"This Redis URL cannot be read; known forms are {_FORMS}.") from exc
    raise ConfigurationError(f"A Redis URL cannot begin with {parts.scheme or 'nothing'!r}; known forms are {_FORMS}.")


def check_options(options: dict[str, Any]) -> None:
    """Refuse clients that decode what they read: stored values are bytes.

    Raises:
        ConfigurationError: `decode_responses=True`.
    """
    if options.get("decode_responses"):
        raise ConfigurationError("decode_responses=True cannot be used: values are bytes. Pass a client without it.")


def cluster_of(endpoint: Endpoint) -> Endpoint:
    """The cluster that a `redis://` URL of one of its nodes belongs to."""
    if endpoint.kind == "cluster":
        return endpoint
    parts = urlsplit(endpoint.url)
    options = {**_common(parts), **endpoint.options}
    return Endpoint("cluster", endpoint.where, hosts=_hosts(parts, 6379), options=options)


def _sentinel(parts: SplitResult, arguments: dict[str, Any]) -> Endpoint:
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    options = {**_common(parts), "db": int(db or 0), **arguments}
    return Endpoint("sentinel", _without_password(parts), "", _hosts(parts, 26379), unquote(service), options)


def _query(parts: SplitResult) -> dict[str, Any]:
    """The query of a URL, as redis-py reads it."""
    found = _redis.connection.parse_url(f"redis://host?{parts.query}")
    check_options(found)
    return {name: value for name, value in found.items() if name != "host"}


def _common(parts: SplitResult) -> dict[str, Any]:
    """User, password and TLS of a URL whose host part is ours to read."""
    options: dict[str, Any] = {}
    credentials = parts.netloc.rpartition("@")[0]
    if credentials:
        user, _, password = credentials.partition(":")
        options |= {"username": unquote(user) or None, "password": unquote(password) or None}
    if parts.scheme.startswith(_SECURE):
        options["ssl"] = True
    return options


def _hosts(parts: SplitResult, port: int) -> tuple[tuple[str, int], ...]:
    hosts = []
    for part in parts.netloc.rpartition("@")[2].split(","):
        one = urlsplit(f"//{part}")
        if not one.hostname:
            raise ValueError("no host")
        hosts.append((one.hostname, one.port or port))
    return tuple(hosts)


def _without_password(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def open_sync(endpoint: Endpoint) -> Any:
    """A client of redis-py; connects when it is used."""
    options = {"retry": Retry(ExponentialBackoff(cap=0.5, base=0.05), 2), **endpoint.options}
    if endpoint.kind == "server":
        return redis.Redis.from_url(endpoint.url, **options)
    if endpoint.kind == "sentinel":
        sentinel = _redis.sentinel.Sentinel(endpoint.hosts, sentinel_kwargs=_for_sentinel(options))
        return sentinel.master_for(endpoint.service, **options)
    nodes = [_redis.cluster.ClusterNode(host, port) for host, port in endpoint.hosts]
    return redis.RedisCluster(startup_nodes=nodes, **options)


def open_async(endpoint: Endpoint) -> Any:
    """Async version of `open_sync`; the client belongs to the running loop."""
    options = {"retry": AsyncRetry(ExponentialBackoff(cap=0.5, base=0.05), 2), **endpoint.options}
    if endpoint.kind == "server":
        return redis.asyncio.Redis.from_url(endpoint.url, **options)
    if endpoint.kind == "sentinel":
        sentinel = _redis.asyncio.sentinel.Sentinel(endpoint.hosts, sentinel_kwargs=_for_sentinel(options))
        return sentinel.master_for(endpoint.service, **options)
    nodes = [redis.asyncio.cluster.ClusterNode(host, port) for host, port in endpoint.hosts]
    return redis.asyncio.RedisCluster(startup_nodes=nodes, **options)


def _for_sentinel(options: dict[str, Any]) -> dict[str, Any]:
    """Timeouts and TLS hold for the Sentinels too; the password is the server's alone."""
    names = (
        "socket_timeout",
        "socket_connect_timeout",
        "ssl",
        "ssl_ca_certs",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_keyfile",
    )
    return {name: options[name] for name in names if name in options}
