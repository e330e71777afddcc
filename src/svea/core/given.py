"""Tasks as users hand them over: a name, a Gymnasium id, a function or a class.

Configurations, records and worker processes know a task by its name. A function that can be
imported has one: `module:function`. Any other (of a notebook, a lambda, a closure, a partial) is
kept here under a name made for it, such as `__main__:make_env`, and workers get it by cloudpickle.
A run folder holds that name and a hash of its source; to continue or evaluate such a run in another
process, the function is given again.
"""

from __future__ import annotations

import base64
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import cloudpickle

from svea.core.errors import UserError
from svea.core.files import sha256
from svea.core.importing import import_named, users_code
from svea.core.process import working_folder_last

if TYPE_CHECKING:
    import gymnasium as gym

Factory = Callable[..., "gym.Env[Any, Any]"]

GYMNASIUM_ID = re.compile(r"[\w:./-]+-v\d+")
_GIVEN: dict[str, Factory] = {}
_PACKED: dict[str, str] = {}  # in a worker: what it was sent
_PLAIN = (bool, int, float, str, bytes, tuple, type(None))


def name_task(task: str | Factory) -> str:
    """The name of a task; a function that has none which can be imported is kept under one."""
    if isinstance(task, str):
        return _name_of_id(task)
    loaded: Any = sys.modules.get("gymnasium")
    if loaded is not None and isinstance(task, loaded.Env | loaded.vector.VectorEnv):
        kind, known = type(task.unwrapped).__name__, getattr(task, "spec", None)
        by_id = f", or its id {known.id!r}" if known else ""
        raise UserError(
            f"task is an environment ({kind}), but a run makes several, each in a process. Pass "
            f"what makes it: its class, or a function such as lambda: {kind}(...){by_id}."
        )
    if not callable(task):
        raise UserError(
            f"task is {task!r}; allowed is a name (`svea tasks` lists them), a Gymnasium id, or a "
            "function that makes an environment of yours."
        )
    module, name = _words(task)
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is task:
        return f"{module}:{name}"
    return _keep(f"{module}:{name}", task)


def _keep(name: str, task: Factory) -> str:
    """Keep a function under its name; a second lambda or closure of that name gets a number.

    All lambdas of a notebook have one name, and a configuration must mean its own. A function of
    the module that is defined again takes the place of the one before, as it does in Python.
    """
    unnamed = "<" in getattr(task, "__qualname__", "")
    number, own = 1, name
    while unnamed and own in _GIVEN and _hash(_GIVEN[own]) != _hash(task):
        number += 1
        own = f"{name}_{number}"
    _GIVEN[own] = task
    return own


def find_factory(name: str) -> Factory:
    """What makes the environments of a task that is a user's own."""
    if name in _PACKED and name not in _GIVEN:
        _GIVEN[name] = cloudpickle.loads(base64.b64decode(_PACKED[name]))
    if name in _GIVEN:
        return _GIVEN[name]
    if GYMNASIUM_ID.fullmatch(name):
        return functools.partial(_make_by_id, name)
    if name.startswith("__main__:"):
        raise UserError(
            f"task {name!r} is a function of a notebook or a script. Pass it again, as "
            "svea.evaluate(run, task=function), or put it into a module: module:function."
        )
    return import_named("task", name)


def pack(tasks: Iterable[str]) -> dict[str, str]:
    """The functions among tasks that a worker cannot import, as text to send to it."""
    packed = {}
    for name in set(tasks) & _GIVEN.keys():
        cure = "make everything that the environment needs inside the function"
        with users_code(f"task {name!r} cannot be sent to a worker process ({cure}):"):
            packed[name] = base64.b64encode(cloudpickle.dumps(_GIVEN[name])).decode()
    return packed


def unpack(packed: dict[str, str]) -> None:
    """Keep what `pack` sent; it is loaded when its environment is made."""
    _PACKED.update(packed)


def fingerprint(name: str) -> str | None:
    """A hash of a kept function's source, and of what it uses of its own module; else None."""
    return _hash(_GIVEN[name]) if name in _GIVEN else None


def _hash(task: Factory) -> str:
    return sha256("\n".join(_sources(task, set())))


def _name_of_id(task: str) -> str:
    """A name as it is; a Gymnasium id as the task it means."""
    if ours := re.fullmatch(r"svea/(\w+)-v0", task):
        return ours[1]
    if ":" in task or not GYMNASIUM_ID.fullmatch(task):
        return task
    import gymnasium as gym

    return f"gymnasium:{task}" if task in gym.registry else task


def _make_by_id(name: str) -> gym.Env[Any, Any]:
    """Make `module:id`, which also is how Gymnasium names an id and the module to import first."""
    import gymnasium as gym

    if name.partition(":")[0] not in sys.modules:
        working_folder_last()
    try:
        return gym.make(name)
    except (gym.error.Error, ImportError) as error:
        raise UserError(f"task {name!r} cannot be made: {error}") from error


def _words(task: Any) -> tuple[str, str]:
    """The module of a function, and an identifier for it."""
    if isinstance(task, functools.partial):
        module, name = _words(task.func)
        given = [*map(str, task.args), *(f"{k}_{v}" for k, v in task.keywords.items())]
        return module, re.sub(r"\W+", "_", "_".join([name, *given])).rstrip("_")[:80]
    named = task if hasattr(task, "__qualname__") else type(task)
    name = named.__qualname__.replace("<locals>.", "").replace("<lambda>", "lambda")
    return named.__module__ or "__main__", re.sub(r"\W+", "_", name)


def _sources(thing: Any, seen: set[int]) -> list[str]:
    """The source of a function or class, and of those of the same module that it uses."""
    if id(thing) in seen:
        return []
    seen.add(id(thing))
    if isinstance(thing, functools.partial):
        used = [thing.func, *thing.args, *(x for item in thing.keywords.items() for x in item)]
        return [text for part in used for text in _sources(part, seen)]
    if inspect.isfunction(thing):
        names = inspect.getclosurevars(thing)
        used = [x for _, x in sorted((dict(names.globals) | dict(names.nonlocals)).items())]
        texts = [_source(thing)]
    elif inspect.isclass(thing):  # of a notebook's class only the methods' source can be found
        used, texts = [*thing.__bases__, *vars(thing).values()], [thing.__qualname__]
    else:
        return [repr(thing)] if isinstance(thing, _PLAIN) else []
    for part in used:
        if getattr(part, "__module__", thing.__module__) == thing.__module__:
            texts += _sources(part, seen)
    return texts


def _source(function: Any) -> str:
    """The text of a function, or its instructions where its text is nowhere."""
    code = function.__code__
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        return str(code.co_code.hex())
    if function.__name__ != "<lambda>":
        return text
    constants = [one for one in code.co_consts if isinstance(one, _PLAIN)]
    return f"{text}{code.co_names}{constants}"  # the text is that of whole lines, which hold others
