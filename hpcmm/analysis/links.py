"""Times and bandwidths of exchanges, between ranks or with a host, as defined by OSU's benchmarks and nccl-tests."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.dtypes import DTYPES
from hpcmm.parallel.host_links import DIRECTIONS
from hpcmm.parallel.links import EXCHANGES, bus_factor, message_elements


def exchanges(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the points that are exchanges, by pattern, transport, ranks and message size.

    Exchanges between ranks need several of them; those between host and device do not.

    Returns
    -------
    DataFrame
        The columns of ``analysis.measurements`` and ``pattern``; ``message_bytes``, of the longest message between two
        ranks; ``algorithm_bytes_per_second``: bytes of a rank's part, over the time of the slowest rank;
        ``bus_bytes_per_second``: of these, the bytes that leave the rank. Both with ``_low`` and ``_high``.
    """
    rows = analysis.points(frame)
    moves = (rows["algorithm"].isin(EXCHANGES) & (rows["ranks"] > 1)) | rows["algorithm"].isin(DIRECTIONS)
    rows = rows[moves & rows["seconds"].notna()].reset_index(drop=True)
    names = ["pattern", "message_bytes", "part_bytes", "factor"]
    found = []
    for row in analysis.row_dicts(rows[["algorithm", "n", "ranks", "dtype"]]):
        pattern, _ = EXCHANGES.get(row["algorithm"], (row["algorithm"], ""))
        itemsize, ranks = DTYPES[row["dtype"]].itemsize, row["ranks"]
        message = message_elements(pattern, row["n"], ranks) * itemsize
        found.append((pattern, message, row["n"] / ranks * itemsize, bus_factor(pattern, ranks)))
    rows = rows.join(pd.DataFrame(found, columns=names, index=rows.index))
    for end, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
        rate = rows["part_bytes"].to_numpy(float) / rows[f"seconds{other}"]
        rows[f"algorithm_bytes_per_second{end}"] = rate
        rows[f"bus_bytes_per_second{end}"] = rate * rows["factor"].to_numpy(float)
    order = np.array([[*EXCHANGES, *DIRECTIONS].index(name) for name in rows["algorithm"]], int)
    rows = rows.assign(order=order).sort_values(["order", "ranks", "dtype", "message_bytes"], kind="stable")
    return rows.drop(columns=["order", "part_bytes", "factor"])
