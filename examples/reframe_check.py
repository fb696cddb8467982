"""A ReFrame test: ``hpcmm check`` finds no slow device; its times are performance variables.

reframe -c examples/reframe_check.py -r
"""

import json
import re
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_before, sanity_function


@rfm.simple_test
class HpcmmCheck(rfm.RunOnlyRegressionTest):
    valid_systems = valid_prog_environs = ["*"]
    executable = "hpcmm check --ranks 2 --directory check --json > check.json"

    def findings(self):
        return json.loads(Path(self.stagedir, "check.json").read_text())

    @sanity_function
    def no_device_is_slow(self):
        found = self.findings()
        slow = {f"{each['node']} slot {each['slot']} {each['uuid']}" for each in found["findings"] if each["slow"]}
        faults = found["broken"] or found["inconclusive"]
        return sn.assert_true(found["passed"], msg=f"{found['verdict']}: {slow or faults}")

    @run_before("performance")
    def slowest_device_of_each_measurement(self):
        seconds = {}
        for each in self.findings()["findings"]:
            seconds.setdefault(each["measurement"], []).append(each["seconds"])
        self.perf_variables = {
            re.sub(r"\W+", "_", name): sn.make_performance_function(sn.defer(max(times)), "s")
            for name, times in seconds.items()
        }
