"""A ReFrame test: ``hpcmm check`` names no slow device, and its times are recorded as performance variables.

    reframe -c examples/reframe_check.py -r

hpcmm must be on the PATH of the nodes. The reference is optional: hpcmm check --write-reference good.json
"""

import json
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn


@rfm.simple_test
class HpcmmCheck(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "hpcmm"
    executable_opts = ["check", "--ranks", "2", "--directory", "check", ">", "check.txt", "||", "test $? -eq 3", "&&"]
    executable_opts += ["hpcmm", "check", "check/results/timings.h5", "--json", ">", "check.json", "||", "true"]

    @sanity_function
    def no_device_is_slow(self):
        found = json.loads(Path(self.stagedir, "check.json").read_text())
        slow = [f"{each['node']} slot {each['slot']} {each['uuid']}" for each in found["findings"] if each["slow"]]
        return sn.assert_true(found["passed"], msg=f"slow: {', '.join(slow)}; wrong: {found['broken']}")

    @run_before("performance")
    def set_times(self):
        found = json.loads(Path(self.stagedir, "check.json").read_text())["findings"]
        for name in dict.fromkeys(each["measurement"] for each in found):
            seconds = [each["seconds"] for each in found if each["measurement"] == name]
            self.perf_variables[name] = sn.make_performance_function(sn.defer(max(seconds)), "s")
