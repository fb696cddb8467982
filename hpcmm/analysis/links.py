"""Times and bandwidths of exchanges, between ranks or with a host, as defined by OSU's benchmarks and nccl-tests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.model.dtypes import DTYPES
from hpcmm.parallel.collective_links import COLLECTIVES
from hpcmm.parallel.collective_links import PATTERNS as collectives
from hpcmm.parallel.host_links import DIRECTIONS
from hpcmm.parallel.links import EXCHANGES, bus_factor, message_elements

BETWEEN_RANKS = (*EXCHANGES, *COLLECTIVES)


def exchanges(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the points that are exchanges, by pattern, transport, ranks and message size.

    Exchanges between ranks need several of them; those between host and device do not.

    Returns
    -------
    DataFrame
        The columns of ``analysis.measurements`` and ``pattern``; ``message_bytes``, of the longest message between two
        ranks, or of the whole vectors of a collective; ``algorithm_bytes_per_second``: bytes of a rank's part, or
        of such a vector, over the time of the slowest rank; ``bus_bytes_per_second``: the bytes that leave a rank, by
        the ring algorithm for an all-reduce. Both with ``_low`` and ``_high``.
    """
    rows = analysis.points(frame)
    moves = (rows["algorithm"].isin(BETWEEN_RANKS) & (rows["ranks"] > 1)) | rows["algorithm"].isin(DIRECTIONS)
    rows = rows[moves & rows["seconds"].notna()].reset_index(drop=True)
    names = ["pattern", "message_bytes", "part_bytes", "factor"]
    found = []
    for row in analysis.row_dicts(rows[["algorithm", "n", "ranks", "dtype"]]):
        itemsize, ranks = DTYPES[row["dtype"]].itemsize, row["ranks"]
        if row["algorithm"] in COLLECTIVES:
            whole, (pattern, _) = row["n"] * itemsize, COLLECTIVES[row["algorithm"]]
            found.append((pattern, whole, whole, collectives[pattern][1](ranks)))
            continue
        pattern, _ = EXCHANGES.get(row["algorithm"], (row["algorithm"], ""))
        message = message_elements(pattern, row["n"], ranks) * itemsize
        found.append((pattern, message, row["n"] / ranks * itemsize, bus_factor(pattern, ranks)))
    rows = rows.join(pd.DataFrame(found, columns=names, index=rows.index))
    for end, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
        rate = rows["part_bytes"].to_numpy(float) / rows[f"seconds{other}"]
        rows[f"algorithm_bytes_per_second{end}"] = rate
        rows[f"bus_bytes_per_second{end}"] = rate * rows["factor"].to_numpy(float)
    order = np.array([[*BETWEEN_RANKS, *DIRECTIONS].index(name) for name in rows["algorithm"]], int)
    rows = rows.assign(order=order).sort_values(["order", "ranks", "dtype", "message_bytes"], kind="stable")
    return rows.drop(columns=["order", "part_bytes", "factor"])
