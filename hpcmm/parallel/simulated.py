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
from itertools import combinations, pairwise
from math import ceil

import numpy as np

from hpcmm.model import TEXTBOOK, HpcmmError
from hpcmm.parallel.cost import Line
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


NEAR = 0.05  # of a step: events that are nearer together change rates once; fewer ranks have finer times


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
    """Predict ``resident``: the shares of B are copied one after the other, and no copy waits for a product."""
    _, n, k = shape
    shares = np.array([count for _, count in block_rows(k, ranks)])
    sources = np.array([arriving(rank, ranks) for rank in range(ranks)]).T[..., None]
    nbytes = shares[sources] * float(n * itemsize)
    nbytes[0] = 0.0
    starts = _starts(sources, nbytes, np.zeros((ranks, ranks)), on)
    latest = int(starts[-1].argmax())
    return multiplied(shape, ranks, on.local, {rank: starts[:, rank].tolist() for rank in {0, latest}})


def _panels(shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    """Predict ``summa``: the panels of a step are asked for when the multiplication of the previous ones starts."""
    m, n, k = shape
    rows, columns = grid(ranks)
    cut, all_ranks = panels(k, rows, columns), np.arange(ranks)
    heights, widths = (np.array([count for _, count in block_rows(*pair)]) for pair in ((m, rows), (n, columns)))
    row, column = np.divmod(all_ranks, columns)
    order = [panels_of(cut, rows, columns, *divmod(rank, columns)) for rank in range(ranks)]
    terms, of_b, of_a = (
        np.array([[getattr(panel, name) for panel in own] for own in order]).T for name in ("terms", "row", "column")
    )
    sources = np.stack([row * columns + of_a, of_b * columns + column], axis=-1)
    away = sources != all_ranks[:, None]
    nbytes = away * (terms[..., None] * np.stack([heights[row], widths[column]], axis=-1) * float(itemsize))
    work = on.local.latency + on.local.per_unit * 2.0 * heights[row] * widths[column] * terms
    return float((_starts(sources, nbytes, work, on)[-1] + work[-1]).max())


def _starts(sources: np.ndarray, nbytes: np.ndarray, work: np.ndarray, on: Platform) -> np.ndarray:
    """Return when ranks start each step, in seconds by step and rank.

    A step starts when its data have arrived and the ``work`` of the previous one, in seconds, is done; then the data of
    the next step are asked for. ``sources`` are ranks, by step, rank and array; ``nbytes`` is 0 of what is there.
    """
    steps, ranks = work.shape
    nodes = ceil(ranks / on.per_node)
    # Links from and to each rank, and out of and into each node; the last one is never busy
    capacity = np.repeat([1 / on.inside.per_unit, 1 / on.between.per_unit, np.inf], [2 * ranks, 2 * nodes, 1])
    ends = [sources, np.broadcast_to(np.arange(ranks)[:, None], sources.shape)]
    far = ends[0] // on.per_node != ends[1] // on.per_node
    beyond = [np.where(far, 2 * ranks + way * nodes + end // on.per_node, -1) for way, end in enumerate(ends)]
    links = np.stack([ends[0], ends[1] + ranks, *beyond], axis=-1) % len(capacity)
    latency = np.where(far, on.between.latency, on.inside.latency)

    shared = (far * nbytes).sum() / steps / nodes * on.between.per_unit
    apart = min(NEAR, (ranks / 1200) ** 3) * max(work.max(), nbytes.max() * on.inside.per_unit, shared)
    now = soon = 0.0
    step, free, arrived, found = np.full(ranks, -1), np.zeros(ranks), np.zeros(ranks), np.zeros(work.shape)
    left, begins, paths, flowed = nbytes[0].copy(), latency[0].copy(), links[0].copy(), np.zeros(nbytes[0].shape, bool)
    while True:
        while (starts := ~left.any(axis=1) & (free <= soon) & (step < steps - 1)).any():
            step[starts] += 1
            begun = found[step[starts], starts] = np.maximum(free, arrived)[starts]
            free[starts] = begun + work[step[starts], starts]
            asked = np.flatnonzero(starts & (step < steps - 1))
            following = step[asked] + 1, asked
            left[asked], paths[asked] = nbytes[following], links[following]
            begins[asked] = found[step[asked], asked, None] + latency[following]
        if (step == steps - 1).all():
            return found
        flowing, rates = (left > 0) & (begins <= soon), np.zeros(left.shape)
        if flowing.any():
            rates[flowing] = _rates(paths[flowing], capacity)
        left += np.where(flowing & ~flowed, rates * (begins - now), 0.0)  # flows begin before or after this time
        until = np.divide(left, rates, out=np.full(left.shape, np.inf), where=rates > 0)
        waits = np.concatenate(
            [until[flowing], begins[(left > 0) & ~flowing] - now, free[~left.any(axis=1) & (step < steps - 1)] - now]
        )
        last = waits.min() + apart
        passed, soon, ended = waits[waits <= last].mean(), now + last, until <= last
        arrived = np.maximum(arrived, np.where(ended, now + until, 0.0).max(axis=1))
        left, flowed = np.where(ended, 0.0, left - rates * passed), flowing & ~ended
        now += passed


def distances(ranks: int) -> list[int]:
    """Return how far the messages of a binomial broadcast go, in their order."""
    return [1 << power for power in reversed(range((ranks - 1).bit_length()))]


def _textbook(shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    """Predict the scatter of A and C from rank 0, a binomial broadcast of B, the products, and the gather of C."""
    m, n, k = shape
    blocks, nodes = np.array([count for _, count in block_rows(m, ranks)]), np.arange(ranks) // on.per_node
    away = nodes > 0
    latency = np.where(away, on.between.latency, on.inside.latency)

    def past_root(begins: np.ndarray, nbytes: np.ndarray) -> float:
        """Return when the links of rank 0 and of its node have passed all messages of the others."""
        last_first, others = np.argsort(-begins), np.arange(ranks) > 0
        pairs = (others, on.inside.per_unit), (away, on.between.per_unit)
        seconds = [(messages * nbytes)[last_first].cumsum() * per_unit for messages, per_unit in pairs]
        return float(((begins[last_first] + seconds) * (np.array(seconds) > 0)).max())

    ready = np.full(ranks, past_root(latency, blocks * float((k + n) * itemsize)))
    for distance in distances(ranks):
        source = np.arange(0, ranks - distance, 2 * distance)
        target = source + distance
        far = nodes[source] != nodes[target]
        # at most one message of a round leaves a node: its senders are twice the distance apart
        per_unit = np.maximum(on.inside.per_unit, far * on.between.per_unit)
        seconds = np.where(far, on.between.latency, on.inside.latency) + per_unit * k * n * itemsize
        ready[target] = ready[source] = ready[source] + seconds
    ready += on.local.latency + on.local.per_unit * 2.0 * blocks * n * k
    return max(float(ready.max()), past_root(np.maximum(ready, ready[0]) + latency, blocks * float(n * itemsize)))


def _turns(shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    """Predict ``ring``: a block is passed on when its sender and its receiver have started the step."""
    m, n, k = shape
    rows, columns = (np.array([count for _, count in block_rows(size, ranks)]) for size in (m, n))
    nodes = np.arange(ranks) // on.per_node
    far = nodes != np.roll(nodes, -1)
    latency = np.where(far, on.between.latency, on.inside.latency)
    per_unit = np.maximum(on.inside.per_unit, far * on.between.per_unit) * k * itemsize
    begins = np.zeros(ranks)
    for step in range(ranks):
        ends = begins + on.local.latency + on.local.per_unit * 2.0 * rows * np.roll(columns, -step) * k
        received = np.maximum(begins, np.roll(begins, -1)) + latency + per_unit * np.roll(columns, -step - 1)
        begins = np.maximum(ends, np.maximum(received, np.roll(received, 1)))
    return float(ends.max())


FORMS = {TEXTBOOK: _textbook, "resident": _gathers, "ring": _turns, "summa": _panels}


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

    It has no latencies: flows of SimGrid share a link in inverse proportion to theirs, as by TCP. The ranks wait.
    """
    nodes = ceil(ranks / on.per_node)
    lines = ['<?xml version="1.0"?>', '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">']
    lines += ['<platform version="4.1">', '<zone id="all" routing="Full">']
    policy = 'sharing_policy="SPLITDUPLEX"'
    for node in range(nodes):
        first, last = node * on.per_node, min(ranks, (node + 1) * on.per_node) - 1
        lines.append(
            f'<cluster id="node{node}" prefix="rank" suffix="" radical="{first}-{last}" speed="1Gf" '
            f'bw="{1 / on.inside.per_unit}Bps" lat="0s" {policy} router_id="router{node}"/>'
        )
        lines.append(f'<link id="out{node}" bandwidth="{1 / on.between.per_unit}Bps" latency="0s" {policy}/>')
    for one, other in combinations(range(nodes), 2):
        ends = f'<link_ctn id="out{one}" direction="UP"/><link_ctn id="out{other}" direction="DOWN"/>'
        route = f'src="node{one}" dst="node{other}" gw_src="router{one}" gw_dst="router{other}"'
        lines.append(f"<zoneRoute {route}>{ends}</zoneRoute>")
    return "\n".join([*lines, "</zone>", "</platform>"])


# --- schedules of one rank, in a process with SimGrid ---------------------------------------------------------------


def _play(name: str, shape: Sequence[int], itemsize: int, ranks: int, on: Platform) -> float:
    import simgrid

    # without the acknowledgements and headers of TCP: a flow has the bandwidth of its links
    configured = [f"--cfg=network/{setting}" for setting in ("model:CM02", "bandwidth-factor:1", "crosstraffic:0")]
    engine = simgrid.Engine(["hpcmm", *configured, "--log=root.thresh:error"])
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(platform_file(ranks, on))
        file.flush()
        engine.load_platform(file.name)
    hosts = [simgrid.Host.by_name(f"rank{rank}") for rank in range(ranks)]
    schedule = {TEXTBOOK: _scatter, "resident": _resident, "ring": _ring, "summa": _summa}[name]
    arrived: dict[int, list[float]] = {}
    for rank in range(ranks):
        context = Context(simgrid, hosts, shape, itemsize, ranks, rank, on, arrived)
        simgrid.Actor.create(f"rank{rank}", hosts[rank], schedule, context)
    engine.run()
    return multiplied(shape, ranks, on.local, arrived) if name == "resident" else simgrid.Engine.clock


Message = tuple[int, Callable]  # the other rank, and a function that starts the flow and returns it first


@dataclass(frozen=True)
class Context:
    simgrid: object
    hosts: Sequence
    shape: Sequence[int]
    itemsize: int
    ranks: int
    rank: int
    on: Platform
    arrived: dict[int, list[float]]

    def step(self, messages: Sequence[Message], flops: float = 0.0) -> None:
        """Multiply while messages arrive and leave; return when all has ended. Each flow starts after its latency."""
        begin, flows, near = self.simgrid.Engine.clock, [], self.rank // self.on.per_node
        lines = [self.on.inside if peer // self.on.per_node == near else self.on.between for peer, _ in messages]
        for line, (_, start) in sorted(zip(lines, messages, strict=True), key=lambda pair: pair[0].latency):
            self.simgrid.this_actor.sleep_until(begin + line.latency)
            flows.append(start())
        for flow, *_ in flows:
            flow.wait()
        self.simgrid.this_actor.sleep_until(begin + self.on.local(flops))

    def copy(self, source: int, nbytes: float) -> Message:
        hosts = self.hosts[source], self.hosts[self.rank]
        return source, lambda: (self.simgrid.Comm.sendto_async(*hosts, ceil(nbytes)),)

    def send(self, target: int, tag: str, nbytes: float) -> Message:
        box = self.simgrid.Mailbox.by_name(f"{self.rank} {target} {tag}")
        return target, lambda: (box.put_async(0, ceil(nbytes)),)

    def receive(self, source: int, tag: str) -> Message:
        # SimGrid writes the payload to the second object that it returns, which must live until then
        return source, self.simgrid.Mailbox.by_name(f"{source} {self.rank} {tag}").get_async


def _ring(of: Context) -> None:
    """Pass each block of columns of B on to the previous rank while it is multiplied."""
    m, n, k = of.shape
    rows, columns = block_row(m, of.ranks, of.rank)[1], [count for _, count in block_rows(n, of.ranks)]
    for step in range(of.ranks):
        here, messages = columns[(of.rank + step) % of.ranks], []
        if step < of.ranks - 1:
            messages.append(of.receive((of.rank + 1) % of.ranks, str(step)))
            messages.append(of.send((of.rank - 1) % of.ranks, str(step), here * k * of.itemsize))
        of.step(messages, 2 * rows * here * k)


def _resident(of: Context) -> None:
    """Copy the shares of B one after the other; products wait for copies, but no copy for a product."""
    _, n, k = of.shape
    shares = [count for _, count in block_rows(k, of.ranks)]
    of.arrived[of.rank] = [0.0]
    for source in arriving(of.rank, of.ranks)[1:]:
        of.step([of.copy(source, shares[source] * n * of.itemsize)])
        of.arrived[of.rank].append(of.simgrid.Engine.clock)


def _summa(of: Context) -> None:
    """Receive the panels of each step while the panels of the previous step are multiplied."""
    m, n, k = of.shape
    grid_rows, grid_columns = grid(of.ranks)
    row, column = divmod(of.rank, grid_columns)
    rows, columns = block_row(m, grid_rows, row)[1], block_row(n, grid_columns, column)[1]
    steps = panels_of(panels(k, grid_rows, grid_columns), grid_rows, grid_columns, row, column)
    for panel, following in pairwise([None, *steps, None]):
        messages = []
        if following:
            owners = zip(following.owners(row, column, grid_columns).values(), (rows, columns), strict=True)
            of_panel = following.terms * of.itemsize
            messages = [of.copy(owner, of_panel * side) for owner, side in owners if owner != of.rank]
        of.step(messages, 2 * rows * columns * panel.terms if panel else 0)


def _scatter(of: Context) -> None:
    """Receive rows of A and C from rank 0 and B along a binomial tree, multiply, and return rows of C."""
    m, n, k = of.shape
    blocks = [count for _, count in block_rows(m, of.ranks)]
    others = range(1, of.ranks)
    rows = [of.send(rank, "scatter", blocks[rank] * (k + n) * of.itemsize) for rank in others]
    of.step([of.receive(0, "scatter")] if of.rank else rows)
    for distance in distances(of.ranks):
        if of.rank % (2 * distance) == distance:
            of.step([of.receive(of.rank - distance, "broadcast")])
        elif of.rank % (2 * distance) == 0 and of.rank + distance < of.ranks:
            of.step([of.send(of.rank + distance, "broadcast", k * n * of.itemsize)])
    of.step([], 2 * blocks[of.rank] * n * k)
    results = [of.receive(rank, "gather") for rank in others]
    of.step([of.send(0, "gather", blocks[of.rank] * n * of.itemsize)] if of.rank else results)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    lines = {name: Line(**given["on"][name]) for name in ("inside", "between", "local")}
    given["on"] = Platform(per_node=given["on"]["per_node"], **lines)
    print(_play(**given))
