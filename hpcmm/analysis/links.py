"""Times and bandwidths of exchanges, between ranks or with a host, as defined by OSU's benchmarks and nccl-tests."""

from collections.abc import Iterable, Mapping
from typing import Any

from hpcmm.analysis.tidy import ENDS
from hpcmm.model.dtypes import DTYPES
from hpcmm.parallel.collective_links import COLLECTIVES
from hpcmm.parallel.collective_links import PATTERNS as collectives
from hpcmm.parallel.host_links import DIRECTIONS
from hpcmm.parallel.links import EXCHANGES, bus_factor, message_elements

BETWEEN_RANKS = (*EXCHANGES, *COLLECTIVES)


def exchanges(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the points that are exchanges, by pattern, transport, ranks and message size.

    Exchanges between ranks need several of them; those between host and device do not. Added to the columns of
    ``analysis.measurements`` are ``pattern``; ``message_bytes``, of the longest message between two ranks, or of the
    whole vectors of a collective; ``algorithm_bytes_per_second``: bytes of a rank's part, or of such a vector, over the
    time of the slowest rank; ``bus_bytes_per_second``: the bytes that leave a rank, by the ring algorithm for an
    all-reduce. Both with ``_low`` and ``_high``.
    """
    timed = []
    for row in rows:
        algorithm, ranks = row["algorithm"], row["ranks"]
        moves = algorithm in DIRECTIONS or (algorithm in BETWEEN_RANKS and ranks > 1)
        if not moves or not row["seconds"] > 0:
            continue
        part = row["n"] * DTYPES[row["dtype"]].itemsize
        if algorithm in COLLECTIVES:
            pattern, message = COLLECTIVES[algorithm][0], part
            factor = collectives[pattern][1](ranks)
        else:
            pattern, _ = EXCHANGES.get(algorithm, (algorithm, ""))
            message = message_elements(pattern, row["n"], ranks) * DTYPES[row["dtype"]].itemsize
            part, factor = part / ranks, bus_factor(pattern, ranks)
        rates = {}
        for end, other in ENDS:
            rates[f"algorithm_bytes_per_second{end}"] = rate = part / row[f"seconds{other}"]
            rates[f"bus_bytes_per_second{end}"] = rate * factor
        timed.append({**row, "pattern": pattern, "message_bytes": message, **rates})
    order = [*BETWEEN_RANKS, *DIRECTIONS]
    return sorted(
        timed, key=lambda row: (order.index(row["algorithm"]), row["ranks"], row["dtype"], row["message_bytes"])
    )
