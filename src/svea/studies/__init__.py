"""Studies: many runs planned at once, supervised on an engine, described by a folder.

`plan` says which runs, `folder` where they lie, `state` how far each is, `supervise` brings one run
to its end, and `engines` decide where and when that happens. Planning needs no torch.
"""

from svea.studies.folder import ATTEMPTS, Study, open_study, read_study
from svea.studies.options import as_flags, flatten, parse_seeds, parse_settings
from svea.studies.plan import Grid, PlannedRun, plan_runs, read_study_file, resolve
from svea.studies.state import (
    STATES,
    Progress,
    RunState,
    read_journal,
    read_progress,
    read_state,
    read_states,
)

__all__ = [
    "ATTEMPTS",
    "STATES",
    "Grid",
    "PlannedRun",
    "Progress",
    "RunState",
    "Study",
    "as_flags",
    "flatten",
    "open_study",
    "parse_seeds",
    "parse_settings",
    "plan_runs",
    "read_journal",
    "read_progress",
    "read_state",
    "read_states",
    "read_study",
    "read_study_file",
    "resolve",
]
