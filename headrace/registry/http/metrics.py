"""Counters in Prometheus' text form."""

from collections import Counter

from headrace.registry.registry import Registry


class Metrics:
    """What was asked and how it was answered."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()

    def count(self, method: str, path: str, status: int, seconds: float) -> None:
        self._requests[method, path, status] += 1
        # A Counter's values may be fractions, though its type does not say so.
        self._seconds[method, path] += seconds  # type: ignore[assignment]

    def text(self, registry: Registry, *, leads: bool) -> str:
        subjects, versions = registry.subjects.counts
        position = registry.log.position if registry.log else 0
        lines = ["# TYPE headrace_registry_requests_total counter"]
        lines += [
            f'headrace_registry_requests_total{{method="{method}",path="{path}",'
            f'status="{status}"}} {count}'
            for (method, path, status), count in sorted(self._requests.items())
        ]
        lines.append("# TYPE headrace_registry_request_seconds_total counter")
        lines += [
            f'headrace_registry_request_seconds_total{{method="{method}",path="{path}"}} {total:f}'
            for (method, path), total in sorted(self._seconds.items())
        ]
        for name, value in (
            ("subjects", subjects),
            ("versions", versions),
            ("log_position", position),
            ("skipped_records", registry.skipped_records),
            ("leader", int(leads)),
        ):
            full = f"headrace_registry_{name}"
            lines += [f"# TYPE {full} gauge", f"{full} {value}"]
        return "\n".join(lines) + "\n"
