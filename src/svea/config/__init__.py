"""What a run is: options with their bounds, presets, checks, dictionaries. No torch."""

# ruff: noqa: F401
from svea.config.checks import check, milestones, seconds
from svea.config.codec import differences, from_dict, to_dict
from svea.config.fields import Role, fields, flat
from svea.config.names import ENCODERS
from svea.config.presets import PRESETS, configure, resolve
from svea.config.run import MAY_CHANGE, Config, fields_with
