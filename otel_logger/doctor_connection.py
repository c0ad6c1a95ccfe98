"""The check of a connection that brought no OTLP answer: what the transport says of it, and what answers instead."""

import re

from otel_logger.doctor_door import CHECK, Door, is_taken_in, protocol_word, said
from otel_logger.doctor_network import Network
from otel_logger.findings import Finding, problem
from otel_logger_exporters.answers import Answer
from otel_logger_exporters.endpoint_urls import GRPC, HTTP, is_loopback
from otel_logger_exporters.proxies import Proxy

__all__ = ["diagnose", "speaks_other", "wants_password"]

CUSTOMARY_PORTS = {GRPC: 4317, HTTP: 4318}
PORTS_WITHOUT_ONE = {True: 80, False: 443}
"""The port of a URL without one, by whether it is insecure: more often forgotten than meant."""

_LATE = ("TIMEOUT", "DEADLINE_EXCEEDED")

UNREACHED = "no connection to "
"""How the transport begins when not even a connection comes about."""

UNNAMED = ": its name "
"""How it goes on when already the name is at fault, or those who should know it."""

_ADVICE = re.compile(r"[:;] ((?:check|give|if it is meant|put|set|use|write) .*)")
"""Where the transport's sentences about TLS and protocols turn to what helps."""


def diagnose(door: Door, answer: Answer, network: Network) -> Finding:
    """Return why a door gave no answer of OTLP; `answer` is what the transport made of that."""
    proxy = door.endpoint.proxy
    if answer.code in _LATE and not answer.message.startswith(UNREACHED):
        # gRPC does not tell whether the connection was late or the answer.
        answer = network.connect(door.endpoint) or answer
    if answer.code == "DNS" or UNNAMED in answer.message:
        return _unknown_host(door, answer)
    if proxy is not None and (answer.code == "PROXY" or answer.message.startswith(UNREACHED)):
        found, password, _ = said(answer, door).partition(" (user and password")
        return problem(CHECK, found, wants_password(proxy) if password else _past(door, proxy))
    if answer.message.startswith(UNREACHED):
        return _unreached(door, answer, network)
    if (finding := _answered_otherwise(door, answer, network)) is not None:
        return finding
    if answer.code in _LATE:
        return problem(
            CHECK,
            f"{door.where} takes the connection, but gives no answer within {network.timeout:g} s",
            "See whether the server hangs, or what stands before it has nothing behind it; try a longer --timeout.",
        )
    found, advice = _divided(said(answer, door))
    if answer.code == "TLS":
        return problem(CHECK, found, _tls_remedy(door, found) or advice or "See the log of the server.")
    if answer.code == "PROTOCOL":
        return problem(CHECK, found, advice or f"Correct the port in {door.variable('ENDPOINT')}.")
    remedy = f"See whether {door.variable('ENDPOINT')} names an OTLP receiver, and see its log."
    if not door.endpoint.insecure and door.endpoint.client_certificate is None:
        # Not every server says so before it hangs up.
        remedy += f" It may want a client's certificate ({door.variable('CLIENT_CERTIFICATE')})."
    found = f"{door.where} takes the connection, but gives no OTLP answer ({answer.code}: {said(answer, door)})"
    return problem(CHECK, found, remedy)


def _tls_remedy(door: Door, found: str) -> str | None:
    certificate = door.variable("CERTIFICATE")
    if "authority" in found:
        if door.endpoint.certificate is not None:
            return f"Add the authority that has signed it to {door.endpoint.certificate}, or correct {certificate}."
        return f"Set {certificate} to a PEM file of the authority that has signed it."
    if "another name" in found:
        return f"Use a name of the certificate in {door.variable('ENDPOINT')}."
    if "expired" in found or "not valid yet" in found:
        return "Renew the server's certificate, or correct the clock of this machine."
    return None


def wants_password(proxy: Proxy) -> str:
    """Return the remedy for a proxy that wants a user and password, or others."""
    return f"Give user and password in {proxy.variable}, as http://user:password@host:port."


def speaks_other(door: Door, other: str, network: Network) -> Finding:
    """Return that the port speaks the protocol `other`, and how to come together."""
    found = f"{door.endpoint.address} speaks {protocol_word(other)}, not {protocol_word(door.endpoint.protocol)}"
    remedy = f"Set {_protocol_setting(door, other)}"
    if (port := _customary_port(door, door.endpoint.protocol, network)) is not None:
        remedy += f", or the port in {door.variable('ENDPOINT')} to {port}"
    return problem(CHECK, found, f"{remedy}.")


def _answered_otherwise(door: Door, answer: Answer, network: Network) -> Finding | None:
    """Return what the same port speaks instead, when it is another protocol, or TLS, or none."""
    endpoint = door.endpoint
    other = GRPC if endpoint.protocol == HTTP else HTTP
    if is_taken_in(network.send(door.otherwise(other))):
        return speaks_other(door, other, network)
    if answer.code in _LATE:
        # Who does not answer one of them will not answer the others, and each takes its time.
        return None
    for protocol in (endpoint.protocol, other):
        attempt = network.send(door.otherwise(protocol, insecure=not endpoint.insecure))
        is_taken = is_taken_in(attempt)
        if not is_taken and not (endpoint.insecure and attempt.answer.code == "TLS"):
            continue
        word = f"{protocol_word(protocol)} " if is_taken and protocol != endpoint.protocol else ""
        change = f" and set {_protocol_setting(door, protocol)}" if word else ""
        variable = door.variable("ENDPOINT")
        if not endpoint.insecure:
            found = f"{endpoint.address} speaks {word or 'OTLP '}without TLS, but the endpoint says https"
            return problem(CHECK, found, f"Write http:// in {variable}{change}, or give the server TLS.")
        found = f"{endpoint.address} speaks {word + 'over ' if word else ''}TLS, but the endpoint says http"
        authority = "" if is_taken else f"; {door.variable('CERTIFICATE')} may have to name its certificate's authority"
        return problem(CHECK, found, f"Write https:// in {variable}{change}{authority}.")
    return None


def _unknown_host(door: Door, answer: Answer) -> Finding:
    if (proxy := door.endpoint.proxy) is not None:
        return problem(CHECK, said(answer, door), _past(door, proxy))
    return problem(
        CHECK,
        said(answer, door),
        f"Correct the host in {door.variable('ENDPOINT')}, or this machine's name service. A service in another "
        "namespace of Kubernetes is <service>.<namespace>.",
    )


def _unreached(door: Door, answer: Answer, network: Network) -> Finding:
    endpoint, variable = door.endpoint, door.variable("ENDPOINT")
    for protocol in (endpoint.protocol, GRPC, HTTP):
        if (port := _customary_port(door, protocol, network)) is not None:
            change = "" if protocol == endpoint.protocol else f", and {_protocol_setting(door, protocol)}"
            found = f"{said(answer, door)}; but port {port} there speaks {protocol_word(protocol)}"
            return problem(CHECK, found, f"Set the port in {variable} to {port}{change}.")
    if answer.code == "TIMEOUT" or "in time" in answer.message:
        remedy = f"Correct {variable}, or let the firewall pass this port. Try a longer --timeout if it is far away."
    elif "refused" in answer.message:
        container = " In a container, localhost is the container itself." if is_loopback(endpoint.host) else ""
        remedy = f"Nothing listens there: start the Collector, or correct {variable}.{container}"
    else:
        remedy = f"Correct {variable}, or this machine's network."
    return problem(CHECK, said(answer, door), remedy)


def _customary_port(door: Door, protocol: str, network: Network) -> int | None:
    """Return the protocol's customary port when it is another than the door's, and answers."""
    port, given = CUSTOMARY_PORTS[protocol], door.endpoint.port
    # A port that is neither customary nor left out was chosen by somebody who knows why.
    expected = (*CUSTOMARY_PORTS.values(), PORTS_WITHOUT_ONE[door.endpoint.insecure])
    if given == port or given not in expected:
        return None
    return port if is_taken_in(network.send(door.otherwise(protocol, port=port))) else None


def _protocol_setting(door: Door, protocol: str) -> str:
    setting = f"{door.variable('PROTOCOL')}={protocol}"
    if protocol == HTTP and door.is_of_one_signal:
        # The path of one signal is used as it is, and gRPC has none.
        setting += f", with {door.variable('ENDPOINT')} ending in /v1/{door.endpoint.signal.value}"
    return setting


def _past(door: Door, proxy: Proxy) -> str:
    return f"Correct {proxy.variable}, or add {door.endpoint.host} to NO_PROXY to reach it without the proxy."


def _divided(sentence: str) -> tuple[str, str | None]:
    """Return a sentence of the transport's without its advice, and the advice as a sentence of its own."""
    if (advice := _ADVICE.search(sentence)) is None:
        return sentence, None
    return sentence[: advice.start()], f"{advice[1][0].upper()}{advice[1][1:]}."
