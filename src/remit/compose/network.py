"""Names the concrete parts of the network: the sandbox's authority, the broker, the proxy that it goes by."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from remit.errors import HostError
from remit.plan.compile import Compiled
from remit.plan.template import Template
from remit.policy.decide import intercepted
from remit.policy.model import Remit
from remit.sandbox.serving import Broker, OpenNetwork

if TYPE_CHECKING:
    from remit.egress.authority import Authority
    from remit.egress.proxy import Proxy
    from remit.plan.trust import Trust


def authority_of(remit: Remit, template: Template) -> tuple[Authority | None, Trust | None]:
    """The sandbox's own certificate authority and what makes programs inside trust it, where TLS has to be read for a
    rule. The private part stays in the first."""
    hosts = intercepted(remit)
    if not hosts:
        return None, None
    from remit.egress.authority import Authority, subject_hash
    from remit.sandbox.trust import trust

    wall = remit.limits.wall_ms
    authority = Authority(hosts, wall / 1000 if wall else None)
    return authority, trust(template, authority.pem, subject_hash())


def broker(compiled: Compiled, remit: Remit, authority: Authority | None) -> OpenNetwork | None:
    """What serves the network of a plan that has one. Its parts are imported only then: they cost 100 ms. Raises
    `HostError` for credentials of a proxy that are not there."""
    network = compiled.plan.network
    if network is None:
        return None
    proxy = _proxy(remit)

    def open_network(sockets: Sequence[int], tell: Callable[[Mapping[str, Any]], None]) -> Broker:
        from remit.egress.connections import Interception
        from remit.egress.driver import Broker as Driver
        from remit.egress.relay import Relay
        from remit.sandbox import launcher
        from remit.sandbox.trust import roots

        interception = Interception(authority, roots()) if authority is not None else None
        relay = Relay(launcher.find())
        return Driver(remit, compiled.view, network.ports, sockets, tell, relay.carry, interception, relay.stop, proxy)

    return open_network


def _proxy(remit: Remit) -> Proxy | None:
    """The way out that the remit names, with its credentials, which stay here. Raises `HostError` without them."""
    said = remit.upstream
    if said is None:
        return None
    from remit.egress.proxy import Proxy

    credentials: str | None = None
    if said.auth_env:
        credentials = os.environ.get(said.auth_env)
        if not credentials:
            hint = f"export {said.auth_env}=user:password, or leave auth_env out"
            raise HostError("network.upstream", f"the variable {said.auth_env} is not set", hint=hint)
    elif said.auth_file:
        try:
            with open(said.auth_file, encoding="utf-8") as file:
                credentials = file.read(4096).strip()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise HostError(
                "network.upstream", f"{said.auth_file}: {reason}", hint="it holds user:password, for you to read"
            ) from error
    if credentials is not None and (":" not in credentials or not credentials.isprintable()):
        raise HostError("network.upstream", "the proxy's credentials are not user:password", hint="one line, one colon")
    return Proxy(said.host, said.port, credentials, said.resolve == "proxy", said.direct)
