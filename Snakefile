import os
import sys

from hpcmm import backends, plan
from hpcmm.model import HpcmmError


configfile: "config.yaml"


# a job on another machine must see the same devices as the machine that planned
config["backends"] = os.environ.setdefault("HPCMM_BACKENDS", config.get("backends", "auto"))
try:
    PLAN = plan.make(config, backends.cuda_missing(), backends.gpu_count())
except HpcmmError as error:
    sys.exit("hpcmm: error: " + str(error))
