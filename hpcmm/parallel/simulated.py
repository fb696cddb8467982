"""The schedules of the distributed products played by SimGrid, on nodes whose devices have fast links.

Each message is a flow that shares its links with the others: a link of each rank, and one of each node to the other
nodes. SimGrid has one engine for a process, so each simulation is a process: ``simulate`` starts this module.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import pairwise
from math import ceil, log2
from typing import NamedTuple

import numpy as np

from hpcmm.model import TEXTBOOK, HpcmmError, Operation
from hpcmm.parallel import ALGORITHMS
from hpcmm.parallel.cost import Line, Machine, moved
from hpcmm.parallel.resident import multiplied
from hpcmm.parallel.schedules import arriving, block_row, block_rows, grid, panels, panels_of


@dataclass(frozen=True)
class Platform:
    """Nodes of some ranks each; ranks have links inside a node, and the ranks of a node share one to other nodes."""

    per_node: int  # ranks of a node
    # inside, between: over the bytes of a message of one rank in each direction at a time
    inside: Line
    between: Line
    local: Line  # over the floating-point operations of a local product


def missing() -> str:
    return "" if find_spec("simgrid") else "simgrid is not installed: pip install 'hpcmm[predict]'"


NEAR = 0.05  # events of a prediction that are nearer to each other, relative to a step, happen together
PRODUCTS = (TEXTBOOK, "resident", "ring", "summa")


def closed_form(of: Operation, name: str, shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    """Predict by a formula: that of the algorithm, or its own where ranks share the link of their node."""
    if name in OWN_FORMS:
        return OWN_FORMS[name](shape, itemsize, ranks, on)
    # the neighbour of one rank of each node is in the next node, and a ring is as slow as its slowest link
    slowest = Line(on.between.latency, max(on.between.per_unit, on.inside.per_unit))
    machine = Machine(on.local, on.inside if ranks <= on.per_node else slowest)
    return ALGORITHMS[name].predict(of, shape, itemsize, ranks, machine)


def _rates(links: np.ndarray, capacity: np.ndarray) -> np.ndarray:
    """Return the bytes per second of flows over some links each, which share each link evenly (max-min fairness)."""
    rates, waiting, left = np.zeros(len(links)), np.ones(len(links), bool), capacity.copy()
    while waiting.any():
        flows = np.bincount(links[waiting].ravel(), minlength=len(left))
        shares = np.divide(left, flows, out=np.full(len(left), np.inf), where=flows > 0)
        limited = waiting & (shares <= shares.min() * (1 + NEAR))[links].any(axis=1)
        rates[limited] = shares[links[limited]].min(axis=1)
        taken = np.bincount(links[limited].ravel(), np.repeat(rates[limited], links.shape[1]), len(left))
        left, waiting = np.maximum(left - taken, 0.0), waiting & ~limited
    return rates


def _gathers(shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    """Predict ``resident``: all ranks of a node read from other nodes at the same time, and share its link."""
    _, n, k = shape
    nbytes = block_row(k, ranks, 0)[1] * n * itemsize
    shared = Line(on.between.latency, max(on.between.per_unit * min(on.per_node, ranks), on.inside.per_unit))
    times = [0.0]
    for source in arriving(0, ranks)[1:]:
        times.append(times[-1] + (on.inside if source < on.per_node else shared)(nbytes))
    return multiplied(shape, ranks, on.local, {0: times})


def _panels(shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    """Predict ``summa``: the panels of a step are asked for when the multiplication of the previous ones starts."""
    m, n, k = shape
    rows, columns = grid(ranks)
    cut, nodes, all_ranks = panels(k, rows, columns), ceil(ranks / on.per_node), np.arange(ranks)
    heights, widths = (np.array([count for _, count in block_rows(*pair)]) for pair in ((m, rows), (n, columns)))
    row, column = np.divmod(all_ranks, columns)
    order = [panels_of(cut, rows, columns, *divmod(rank, columns)) for rank in range(ranks)]
    terms, of_b, of_a = (
        np.array([[getattr(panel, name) for panel in own] for own in order]).T for name in ("terms", "row", "column")
    )
    # By step and rank, of A and of B: the rank that has the panel, and the bytes of it; none of a panel that is there
    sources = np.stack([row * columns + of_a, of_b * columns + column], axis=-1)
    away = sources != all_ranks[:, None]
    nbytes = away * (terms[..., None] * np.stack([heights[row], widths[column]], axis=-1) * float(itemsize))
    work = on.local.latency + on.local.per_unit * 2.0 * heights[row] * widths[column] * terms
    # Links from and to each rank, and out of and into each node; the last one is never busy
    capacity = np.repeat([1 / on.inside.per_unit, 1 / on.between.per_unit, np.inf], [2 * ranks, 2 * nodes, 1])
    ends = [sources, np.broadcast_to(all_ranks[:, None], sources.shape)]
    far = ends[0] // on.per_node != ends[1] // on.per_node
    beyond = [np.where(far, 2 * ranks + way * nodes + end // on.per_node, -1) for way, end in enumerate(ends)]
    links = np.stack([ends[0], ends[1] + ranks, *beyond], axis=-1) % len(capacity)
    latency = np.where(far, on.between.latency, on.inside.latency)

    steps, shared = len(work), (far * nbytes).sum() / len(work) / nodes * on.between.per_unit
    apart = min(NEAR, ranks / 1000) * max(work.max(), nbytes.max() * on.inside.per_unit, shared)
    now, step, free = 0.0, np.full(ranks, -1), np.zeros(ranks)
    left, begins, paths, rates = nbytes[0].copy(), latency[0].copy(), links[0].copy(), np.zeros((ranks, 2))
    while True:
        while (starts := ~left.any(axis=1) & (free <= now + apart / 2) & (step < steps - 1)).any():
            step[starts] += 1
            free[starts] = np.maximum(free[starts], now) + work[step[starts], starts]
            asked = np.flatnonzero(starts & (step < steps - 1))
            following = step[asked] + 1, asked
            left[asked], paths[asked] = nbytes[following], links[following]
            begins[asked] = now + latency[following]
        if (step == steps - 1).all():
            return float(free.max())
        flowing = (left > 0) & (begins <= now + apart / 2)
        rates[:] = 0.0
        if flowing.any():
            rates[flowing] = _rates(paths[flowing], capacity)
        until = np.divide(left, rates, out=np.full(left.shape, np.inf), where=rates > 0)
        waits = np.concatenate(
            [until[flowing], begins[(left > 0) & ~flowing] - now, free[~left.any(axis=1) & (free > now)] - now]
        )
        passed = waits.min() + apart / 2
        now += passed
        left = np.where(until <= passed + apart / 2, 0.0, np.maximum(left - rates * passed, 0.0))


def _textbook(shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    """Predict the scatter of A and C from rank 0, a binomial broadcast of B, the product, and the gather of C."""
    m, n, k = shape
    _, rows = block_row(m, ranks, 0)
    nodes = ceil(ranks / on.per_node)

    def from_root(nbytes: int) -> float:
        if ranks == 1:
            return 0.0
        away = nbytes * (ranks - min(ranks, on.per_node)) / (ranks - 1)
        return (
            max(nbytes * on.inside.per_unit, away * on.between.per_unit)
            + (on.between if nodes > 1 else on.inside).latency
        )

    rounds = ceil(log2(nodes)), ceil(log2(min(ranks, on.per_node)))
    lines = Line(on.between.latency, max(on.between.per_unit, on.inside.per_unit)), on.inside
    broadcast = sum(count * line(k * n * itemsize) for count, line in zip(rounds, lines, strict=True))
    ends = sum(from_root(moved(phase, shape, itemsize, ranks)) for phase in ("scatter", "gather"))
    return ends + broadcast + on.local(2 * rows * n * k)


OWN_FORMS = {TEXTBOOK: _textbook, "resident": _gathers, "summa": _panels}


def simulate(name: str, shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    """Play the schedule of an algorithm on all ranks; return the seconds of the slowest."""
    if missing():
        raise HpcmmError(missing())
    asked = json.dumps({"name": name, "shape": shape, "itemsize": itemsize, "ranks": ranks, "on": asdict(on)})
    done = subprocess.run([sys.executable, "-m", "hpcmm.parallel.simulated", asked], capture_output=True, text=True)
    if done.returncode:
        raise HpcmmError(f"{name} on {ranks} ranks: SimGrid failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout.split()[-1])


def platform_file(ranks: int, on: Platform) -> str:
    """Return a platform of SimGrid: a cluster for each node, and a route between each pair of nodes.

    The latency of a message is that of its kind of link, so it is on the links between nodes and half on each of both
    links of ranks.
    """
    nodes = ceil(ranks / on.per_node)
    beyond = max(0.0, on.between.latency - on.inside.latency) / 2
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">']
    lines += ['<platform version="4.1">', '<zone id="all" routing="Full">']
    for node in range(nodes):
        first, last = node * on.per_node, min(ranks, (node + 1) * on.per_node) - 1
        lines.append(
            f'<cluster id="node{node}" prefix="rank" suffix="" radical="{first}-{last}" speed="1Gf" '
            f'bw="{1 / on.inside.per_unit}Bps" lat="{on.inside.latency / 2}s" sharing_policy="SPLITDUPLEX" '
            f'router_id="router{node}"/>'
        )
    for node in range(nodes if nodes > 1 else 0):
        policy = 'sharing_policy="SPLITDUPLEX"'
        lines.append(f'<link id="out{node}" bandwidth="{1 / on.between.per_unit}Bps" latency="{beyond}s" {policy}/>')
    for one in range(nodes):
        for other in range(one + 1, nodes):
            ends = f'<link_ctn id="out{one}" direction="UP"/><link_ctn id="out{other}" direction="DOWN"/>'
            route = f'src="node{one}" dst="node{other}" gw_src="router{one}" gw_dst="router{other}"'
            lines.append(f"<zoneRoute {route}>{ends}</zoneRoute>")
    return "\n".join([*lines, "</zone>", "</platform>"])


# --- schedules of one rank, in a process with SimGrid ---------------------------------------------------------------


def _play(name: str, shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    import simgrid

    # neither TCP's windows nor its headers: a flow has the bandwidth of its links
    settings = {"model": "CM02", **dict.fromkeys(("latency-factor", "bandwidth-factor"), 1)}
    settings |= dict.fromkeys(("crosstraffic", "TCP-gamma", "weight-S"), 0)
    configured = [f"--cfg=network/{key}:{value}" for key, value in settings.items()]
    engine = simgrid.Engine(["hpcmm", *configured, "--log=root.thresh:error"])
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(platform_file(ranks, on))
        file.flush()
        engine.load_platform(file.name)
    hosts = [simgrid.Host.by_name(f"rank{rank}") for rank in range(ranks)]
    ends: dict[int, Callable[[], float] | float] = {}
    schedule = {TEXTBOOK: _scatter, "resident": _resident, "ring": _ring, "summa": _summa}[name]
    arrived: dict[int, list[float]] = {}

    def copy(source: int, target: int, nbytes: float):
        return simgrid.Comm.sendto_async(hosts[source], hosts[target], ceil(nbytes))

    for rank in range(ranks):
        context = Context(simgrid, engine, copy, shape, itemsize, ranks, rank, on, arrived)

        def actor(context=context, rank=rank) -> None:
            schedule(context)
            ends[rank] = context.now()

        simgrid.Actor.create(f"rank{rank}", hosts[rank], actor)
    engine.run()
    return multiplied(shape, ranks, on.local, arrived) if name == "resident" else max(ends.values())


@dataclass(frozen=True)
class Context:
    simgrid: object
    engine: object
    copy: Callable
    shape: Sequence[int]
    itemsize: int
    ranks: int
    rank: int
    on: Platform
    arrived: dict[int, list[float]]

    def now(self) -> float:
        return getattr(self.engine, "clock", 0.0) if not callable(self.engine.clock) else self.engine.clock()

    def multiply(self, flops: float) -> None:
        self.simgrid.this_actor.sleep_for(self.on.local(flops))

    def send(self, target: int, tag: str, nbytes: float):
        return self.simgrid.Mailbox.by_name(f"{self.rank} {target} {tag}").put_async(0, ceil(nbytes))

    def receive(self, source: int, tag: str):
        return Receipt(self.simgrid.Mailbox.by_name(f"{source} {self.rank} {tag}").get_async())


class Receipt(NamedTuple):
    """A message that arrives. SimGrid writes its payload to the second object, which must live until then."""

    pair: tuple

    def wait(self) -> None:
        self.pair[0].wait()


def _ring(of: Context) -> None:
    """Pass each block of columns of B on to the previous rank while it is multiplied."""
    m, n, k = of.shape
    rows, columns = block_row(m, of.ranks, of.rank)[1], [count for _, count in block_rows(n, of.ranks)]
    for step in range(of.ranks):
        flows = []
        if step < of.ranks - 1:
            here = columns[(of.rank + step) % of.ranks]
            flows.append(of.receive((of.rank + 1) % of.ranks, str(step)))
            flows.append(of.send((of.rank - 1) % of.ranks, str(step), here * k * of.itemsize))
        of.multiply(2 * rows * columns[(of.rank + step) % of.ranks] * k)
        for flow in flows:
            flow.wait()


def _resident(of: Context) -> None:
    """Copy the shares of B one after the other; products wait for copies, but no copy for a product."""
    _, n, k = of.shape
    shares = [count for _, count in block_rows(k, of.ranks)]
    of.arrived[of.rank] = [0.0]
    for source in arriving(of.rank, of.ranks)[1:]:
        of.copy(source, of.rank, shares[source] * n * of.itemsize).wait()
        of.arrived[of.rank].append(of.now())


def _summa(of: Context) -> None:
    """Receive the panels of each step while the panels of the previous step are multiplied."""
    m, n, k = of.shape
    grid_rows, grid_columns = grid(of.ranks)
    row, column = divmod(of.rank, grid_columns)
    rows, columns = block_row(m, grid_rows, row)[1], block_row(n, grid_columns, column)[1]
    steps = panels_of(panels(k, grid_rows, grid_columns), grid_rows, grid_columns, row, column)

    def flows(panel) -> list:
        owners = zip(panel.owners(row, column, grid_columns).values(), (rows, columns), strict=True)
        return [of.copy(owner, of.rank, panel.terms * side * of.itemsize) for owner, side in owners if owner != of.rank]

    waiting = flows(steps[0])
    for panel, following in pairwise([*steps, None]):
        for flow in waiting:
            flow.wait()
        waiting = flows(following) if following else []
        of.multiply(2 * rows * columns * panel.terms)


def _scatter(of: Context) -> None:
    """Receive rows of A and C from rank 0 and B along a binomial tree, multiply, and return rows of C."""
    m, n, k = of.shape
    blocks = [count for _, count in block_rows(m, of.ranks)]
    if of.rank == 0:
        for flow in [of.send(rank, "scatter", blocks[rank] * (k + n) * of.itemsize) for rank in range(1, of.ranks)]:
            flow.wait()
    else:
        of.receive(0, "scatter").wait()
    distance = 1 << max(0, (of.ranks - 1).bit_length() - 1)
    has = of.rank == 0
    while distance:
        if has and of.rank + distance < of.ranks and of.rank % (2 * distance) == 0:
            of.send(of.rank + distance, "broadcast", k * n * of.itemsize).wait()
        elif not has and of.rank % (2 * distance) == distance:
            of.receive(of.rank - distance, "broadcast").wait()
            has = True
        distance //= 2
    of.multiply(2 * blocks[of.rank] * n * k)
    if of.rank == 0:
        for flow in [of.receive(rank, "gather") for rank in range(1, of.ranks)]:
            flow.wait()
    else:
        of.send(0, "gather", blocks[of.rank] * n * of.itemsize).wait()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    lines = {name: Line(**given["on"][name]) for name in ("inside", "between", "local")}
    given["on"] = Platform(per_node=given["on"]["per_node"], **lines)
    print(_play(**given))
