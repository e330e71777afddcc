"""Studies: many runs planned at once, supervised on an engine, described by a folder.

`plan` says which runs, `folder` where they lie and how far each is, `supervise` brings runs to
their end in processes, and `engines`, `ray` and `slurm` decide where and when that happens. `work`
puts it together. Planning needs no torch.
"""

# ruff: noqa: F401
from svea.studies.folder import (
    STATES,
    RunState,
    Study,
    open_study,
    read_progress,
    read_states,
    read_study,
)
from svea.studies.plan import Grid, PlannedRun, parse_seeds, plan_runs, read_study_file
from svea.studies.work import sweep
