"""Exchanges between ranks as OSU's benchmarks and nccl-tests state them: message size, time, bandwidths."""

from __future__ import annotations

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.dtypes import DTYPES
from hpcmm.parallel.links import EXCHANGES, bus_factor, message_elements


def exchanges(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the points that are exchanges between several ranks, by pattern, transport, ranks and message size.

    Returns
    -------
    DataFrame
        The columns of ``analysis.measurements`` and ``pattern``; ``message_bytes``, of the longest message between two
        ranks; ``algorithm_bytes_per_second``: bytes of a rank's part, over the time of the slowest rank;
        ``bus_bytes_per_second``: of these, the bytes that leave the rank. Both with ``_low`` and ``_high``.
    """
    rows = analysis.points(frame)
    rows = rows[rows["algorithm"].isin(EXCHANGES) & (rows["ranks"] > 1) & rows["seconds"].notna()]
    names = ["pattern", "message_bytes", "part_bytes", "factor"]
    found = []
    for row in analysis.row_dicts(rows[["algorithm", "n", "ranks", "dtype"]]):
        pattern, itemsize, ranks = EXCHANGES[row["algorithm"]][0], DTYPES[row["dtype"]].itemsize, row["ranks"]
        message = message_elements(pattern, row["n"], ranks) * itemsize
        found.append((pattern, message, row["n"] / ranks * itemsize, bus_factor(pattern, ranks)))
    rows = rows.join(pd.DataFrame(found, columns=names, index=rows.index))
    for end, other in (("", ""), ("_low", "_high"), ("_high", "_low")):
        rate = rows["part_bytes"].to_numpy(float) / rows[f"seconds{other}"]
        rows[f"algorithm_bytes_per_second{end}"] = rate
        rows[f"bus_bytes_per_second{end}"] = rate * rows["factor"].to_numpy(float)
    order = np.array([list(EXCHANGES).index(name) for name in rows["algorithm"]], int)
    rows = rows.assign(order=order).sort_values(["order", "ranks", "dtype", "message_bytes"], kind="stable")
    return rows.drop(columns=["order", "part_bytes", "factor"])
