"""Prometheus metrics, coarse on purpose: nothing per request, per tenant or per cache hit (docs/security.md)."""

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

# Outcomes of a request that a front end may report.
OUTCOMES = ("ok", "client-error", "server-error", "cancelled", "refused")


class Metrics:
    """The launcher's own registry; the engine's metrics are never exported."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.ready = Gauge("strongroom_ready", "1 while requests are accepted", registry=self._registry)
        self.open_requests = Gauge("strongroom_open_requests", "Requests in progress", registry=self._registry)
        self.engine_requests = Gauge(
            "strongroom_engine_requests", "Requests in the engine", ["state"], registry=self._registry
        )
        self.requests = Counter("strongroom_requests", "Requests ended", ["outcome"], registry=self._registry)
        self.restarts = Counter("strongroom_front_end_restarts", "Front ends started again", registry=self._registry)
        for outcome in OUTCOMES:
            self.requests.labels(outcome)
        for state in ("running", "waiting"):
            self.engine_requests.labels(state)

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self._registry)
