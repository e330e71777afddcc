"""SVEA: image-based reinforcement learning that stays stable under strong data augmentation.

    import svea

    config = svea.configure("walker_walk", preset="quick")
    run = svea.train(config)
    env = svea.make_env(**config.environment, mode="color_hard")  # a plain Gymnasium environment
    action = svea.load_agent(run).act(env.reset()[0])
    records = svea.evaluate(run, modes=["train", "color_hard"])
    svea.report(run)  # one page about it; svea.sweep trains many runs, svea.compare two methods

Every name is imported when it is first used; the environments need no torch.
"""

# No more modules than these before `__main__` has taken the working folder off the path.
import importlib

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from svea import augment as augment
    from svea.config import Config as Config
    from svea.config import configure as configure
    from svea.envs import make_env as make_env
    from svea.evaluation.requests import evaluate as evaluate
    from svea.results.compare import compare as compare
    from svea.results.report import report as report
    from svea.runs.load import load_agent as load_agent
    from svea.studies import sweep as sweep
    from svea.training import train as train

_LAZY = {
    "Config": "svea.config",
    "augment": "svea.augment",  # the room itself
    "compare": "svea.results.compare",
    "configure": "svea.config",
    "evaluate": "svea.evaluation.requests",
    "load_agent": "svea.runs.load",
    "make_env": "svea.envs",
    "report": "svea.results.report",
    "sweep": "svea.studies",
    "train": "svea.training",
}
__all__ = ["__version__", *_LAZY]


def __dir__() -> list[str]:
    """The public names, whether imported yet or not: what an editor or notebook completes."""
    return sorted(__all__)


def __getattr__(name: str) -> "Any":
    """Import the parts that need torch when they are first asked for."""
    if name not in _LAZY:
        raise AttributeError(f"module 'svea' has no attribute {name!r}")
    try:
        module = importlib.import_module(_LAZY[name])
    except ModuleNotFoundError as error:
        from svea.core.errors import install_hint

        if error.name is None or error.name.startswith("svea"):
            raise
        raise ModuleNotFoundError(
            f"svea.{name} needs {error.name}: {install_hint()}", name=error.name
        ) from error
    value = module if module.__name__ == f"svea.{name}" else getattr(module, name)
    globals()[name] = value
    return value
