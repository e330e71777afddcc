"""Where and how fast an agent learns: device, precision, compiled and captured updates, kernels.

The update itself is written once, in agents/, and does not know. `accelerate` puts fast versions of
its parts on an agent; `Learner` is what the training loop calls.
"""

# ruff: noqa: F401
from svea.speed.accelerate import accelerate, uncompiled
from svea.speed.device import (
    EXACT,
    check_one_arithmetic,
    choose_device,
    choose_precision,
    choose_speed,
    explained,
    precision_context,
    synchronise,
    warm_up,
)
from svea.speed.learner import WARM_UP, Learner, lane
