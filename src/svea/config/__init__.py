"""What a run is: options with their bounds, presets, checks, dictionaries. No torch."""

# ruff: noqa: F401
from svea.config.checks import check, milestones, seconds
from svea.config.names import ENCODERS
from svea.config.presets import PRESETS, configure, differences, from_dict, resolve, to_dict
from svea.config.run import MAY_CHANGE, Config, Role, fields, fields_with, flat
