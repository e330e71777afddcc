"""What a run is: options with their bounds, presets, checks, dictionaries. No torch."""

from svea.config.augmentations import AUGMENTATION_NAMES, parse_augmentation
from svea.config.checks import check, milestones, seconds
from svea.config.codec import differences, from_dict, to_dict
from svea.config.names import ENCODERS, is_own_encoder
from svea.config.options import (
    AgentOptions,
    CURLOptions,
    DDPGOptions,
    DQNOptions,
    MaDiOptions,
    NetworkOptions,
    PADOptions,
    SACOptions,
    SGQNOptions,
    SODAOptions,
)
from svea.config.presets import PRESETS, configure, resolve
from svea.config.run import MAY_CHANGE, Config, Role, fields_with

__all__ = [
    "AUGMENTATION_NAMES",
    "ENCODERS",
    "MAY_CHANGE",
    "PRESETS",
    "AgentOptions",
    "CURLOptions",
    "Config",
    "DDPGOptions",
    "DQNOptions",
    "MaDiOptions",
    "NetworkOptions",
    "PADOptions",
    "Role",
    "SACOptions",
    "SGQNOptions",
    "SODAOptions",
    "check",
    "configure",
    "differences",
    "fields_with",
    "from_dict",
    "is_own_encoder",
    "milestones",
    "parse_augmentation",
    "resolve",
    "seconds",
    "to_dict",
]
