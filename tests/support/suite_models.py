"""Models of dm_control's suite without what our modes do, and as the benchmark edits them."""

import copy
import importlib
import re
from collections.abc import Iterable
from typing import Any


def undisturbed(env: Any) -> Any:
    """The simulator's data in the present state, before a mode has moved anything."""
    import mujoco

    scene = env.unwrapped._scene
    data = copy.copy(scene.data)
    mujoco.mj_kinematics(scene.model, data)
    mujoco.mj_comPos(scene.model, data)
    mujoco.mj_camlight(scene.model, data)
    return data


def recompiled(domain: str, edits: Iterable[tuple[str, str, str]], state: Any) -> tuple[Any, Any]:
    """A domain's model compiled from edited XML, and data in the same state as these.

    An edit is a file, a pattern, and what replaces it; something must be found.
    """
    import mujoco

    module = importlib.import_module(f"dm_control.suite.{domain}")
    xml, assets = module.get_model_and_assets()
    assets = {name: bytes(content).decode() for name, content in assets.items()}
    for name, pattern, replacement in edits:
        assets[name], count = re.subn(pattern, replacement, assets[name])
        assert count, pattern
    encoded = {name: text.encode() for name, text in assets.items()}
    model = mujoco.MjModel.from_xml_string(xml, encoded)
    data = mujoco.MjData(model)
    data.qpos[:] = state.qpos
    mujoco.mj_forward(model, data)
    return model, data
