"""Studies: many runs planned at once, supervised on an engine, described by a folder.

`plan` says which runs, `folder` where they lie, `state` how far each is, `supervise` brings runs to
their end in processes that do what `child` says, and `engines` decide where and when that happens.
`work` puts it together. Planning needs no torch.
"""

from svea.studies.folder import ATTEMPTS, Study, open_study, read_study
from svea.studies.plan import (
    Grid,
    PlannedRun,
    as_flags,
    parse_seeds,
    plan_runs,
    read_study_file,
    resolve,
)
from svea.studies.state import (
    STATES,
    Progress,
    RunState,
    read_journal,
    read_progress,
    read_state,
    read_states,
)
from svea.studies.work import sweep

__all__ = [
    "ATTEMPTS",
    "STATES",
    "Grid",
    "PlannedRun",
    "Progress",
    "RunState",
    "Study",
    "as_flags",
    "open_study",
    "parse_seeds",
    "plan_runs",
    "read_journal",
    "read_progress",
    "read_state",
    "read_states",
    "read_study",
    "read_study_file",
    "resolve",
    "sweep",
]
