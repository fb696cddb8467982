"""Quantities that are recorded beside a point, from ``quantities.yaml``: phases, states, energy, errors, counters."""

from hpcmm.model.records import beside

_TABLES = beside(__file__)
PHASES = tuple(_TABLES["phases"])
STATES, DATA, BITS = (_TABLES[name] for name in ("states", "data", "bits"))
STALLS = _TABLES["stalls"]  # why a warp waits
ENERGY, CPU_EVENTS, RESOURCES = (
    {name: tuple(row) for name, row in _TABLES[table].items()} for table in ("energy", "cpu_events", "resources")
)
ERRORS = {
    f"{of}_{kind}": ("1", f"{what} error relative to the sum of magnitudes, on data {text} (NaN: no such pass)")
    for kind, text in DATA.items()
    for of, what in (("error", "largest"), ("rms", "root mean square"))
}
DIFFERENCES = {}
for _question, _text in BITS.items():
    _largest, _first = "largest difference in units in the last place", "index of the first element that differs"
    DIFFERENCES[f"ulps_{_question}"] = ("1", f"{_largest} from {_text} (NaN: not compared)")
    DIFFERENCES[f"first_{_question}"] = ("1", f"{_first} from {_text} (-1: none; NaN: not compared)")
ONCE = ENERGY | ERRORS | DIFFERENCES | CPU_EVENTS  # what the first visit of a point measures beside its times
COUNTERS = {}  # of Nsight Compute: unit, long name, and name of the metric
for _name, _row in _TABLES["counters"].items():
    COUNTERS[_name] = tuple(_row)
    if _name == "warp_cycles":
        for _stall, _what in STALLS.items():
            _metric = f"smsp__average_warps_issue_stalled_{_stall}_per_issue_active.ratio"
            COUNTERS[f"stall_{_stall}"] = ("1", f"of these, cycles in which it waits for {_what}", _metric)
