"""Products on several nodes: closed forms against SimGrid where it is installed, and against arithmetic by hand."""

import json
import math

import pytest

from hpcmm.bench.adoption.trials import guarded
from hpcmm.cli import main
from hpcmm.cli.arguments import link
from hpcmm.parallel import simulated
from hpcmm.parallel.cost import Line
from hpcmm.parallel.simulated import FORMS, Platform, simulate

LATE = Platform(3, Line(5e-5, 1 / 20e9), Line(1e-6, 1 / 30e9), Line(0.0, 1 / 100e12))  # other nodes answer earlier
FAST = Platform(4, Line(1e-6, 1 / 900e9), Line(2e-6, 1 / 400e9), Line(0.0, 1 / 10e12))  # products take longest
PAIRS = Platform(2, Line(2e-6, 1 / 100e9), Line(4e-6, 1 / 20e9), Line(2e-6, 1 / 20e12))  # ranks drift apart
BETWEEN = Platform(8, Line(5e-6, 1 / 200e9), Line(3e-5, 1 / 12e9), Line(1e-6, 1 / 50e12))  # links of nodes are slow
needs_simgrid = pytest.mark.skipif(bool(simulated.missing()), reason=simulated.missing())


@needs_simgrid
def test_a_simulation_is_a_process():
    asked = "ring", (8192, 6144, 4096), 4, 4, BETWEEN
    first = simulate(*asked)
    assert first == simulate(*asked) == guarded(lambda: simulated._play(*asked), 60)


@needs_simgrid
@pytest.mark.parametrize("on", [LATE, FAST, BETWEEN, PAIRS], ids=["late", "products", "between", "pairs"])
@pytest.mark.parametrize("name", FORMS)
def test_closed_forms_are_near_simulated_schedules(name, on):
    for ranks, shape in ((4, (8192, 6144, 4096)), (6, (16384, 4096, 8192)), (16, (1000, 6145, 4099))):
        # a fork has an engine of its own, too, and Python starts in as much time as all simulations take
        played = guarded(lambda given=(name, shape, 4, ranks, on): simulated._play(*given), 60)
        assert played >= 0.999 * on.local(2 * math.prod(shape) / ranks)
        assert FORMS[name](shape, 4, ranks, on) == pytest.approx(played, rel=0.01)


def test_the_ranks_of_a_node_share_its_link():
    """Eight ranks on two nodes, no products: four blocks cross the link at a time, or one in a ring."""
    on = Platform(4, Line(0.0, 1e-9), Line(0.0, 1e-8), Line(0.0, 1e-30))
    block = 1024 * 128 * 4  # bytes of an eighth of B
    assert FORMS["resident"]((1024,) * 3, 4, 8, on) == pytest.approx((3 * 1e-9 + 4 * 4 * 1e-8) * block)
    assert FORMS["ring"]((1024,) * 3, 4, 8, on) == pytest.approx(7 * 1e-8 * block)
    on = Platform(4, Line(1e-3, 1e-9), Line(0.0, 1e-9), Line(0.0, 1e-30))  # messages inside a node are slower
    assert FORMS["ring"]((1024,) * 3, 4, 8, on) == pytest.approx(7 * (1e-3 + 1e-9 * block))


def test_predictions_use_options_and_name_a_rate_that_is_not_known(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    links = ["--inside", "10us,300GB/s", "--between", "20us,50GB/s"]
    asked = ["predict", *links, "--ranks", "8,64", "--size", "4096", "--simulate", "0"]
    assert main.main([*asked, "--rate", "50", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["algorithm"], each["ranks"]) for each in found] == [(name, r) for name in FORMS for r in (8, 64)]
    assert found[0]["local"] == pytest.approx(2 * 4096**3 / 8 / 50e12)
    assert main.main(asked) == 1
    assert "--rate TFLOPS" in capsys.readouterr().err
    (tmp_path / "profiles" / "slurm").mkdir(parents=True)
    (tmp_path / "profiles" / "slurm" / "site.yaml").write_text("inside_link: 10us,300GB/s\nbetween_link: 20us,50GB/s\n")
    assert main.main(["predict", "--rate", "50", *asked[5:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    (tmp_path / "profiles" / "slurm" / "site.yaml").write_text("inside_link: 10us\n")
    assert main.main(["predict", "--rate", "50", *asked[5:]]) == 1
    assert "profiles/slurm/site.yaml: inside_link: '10us' is not allowed; allowed: a la" in capsys.readouterr().err


def test_a_link_is_a_latency_and_a_rate(capsys):
    assert link("1.5 us, 2 TB/s") == (1.5e-6, 2e12)
    for wrong in ("", "10us", "350GB/s", "10us,0GB/s", "10s,1GB/s"):
        with pytest.raises(SystemExit):
            main.main(["predict", f"--inside={wrong}"])
        assert f"{wrong!r} is not allowed; allowed: a latency and a rate, such as" in capsys.readouterr().err
