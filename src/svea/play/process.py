"""One agent of a page, in a process of its own: it answers packets until its socket closes."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import signal
import socket
import time
import traceback
from typing import Any

import torch

from svea.core import importing
from svea.core.errors import SveaError, UserError
from svea.play import wire
from svea.play.player import Player, Seat, as_jpeg
from svea.play.session import FASTEST
from svea.play.setting import Setting

SMOOTH = 40  # pictures a second that are worth their time
BUSY = 0.8  # share of the time between decisions that an agent may take


def main(own_end: str) -> None:
    """Serve the parent; it ends this process by closing the socket, by a signal, or by dying."""
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is the parent's to handle
    with socket.socket(fileno=int(own_end)) as end, contextlib.suppress(ConnectionError):
        lines = end.makefile("rb")
        start = json.loads(lines.readline() or b"null")
        if start is None:
            return
        importing.trust(importing.EVERYTHING)  # the parent has asked, before it started this one
        torch.set_num_threads(start["threads"])
        server = _Serving(end, start["agent"])
        server.answer({"do": "start"} | start)
        for line in lines:
            server.answer(json.loads(line))


class _Serving:
    """The player, and how it answers."""

    def __init__(self, end: socket.socket, agent: int) -> None:
        self._end, self._agent = end, agent
        self._player: Player | None = None
        self._between = 0  # pictures between two decisions

    def answer(self, command: dict[str, Any]) -> None:
        """Do as told and say so; what goes wrong is the answer's `error`."""
        header: dict[str, Any] = {"agent": self._agent, "did": command["do"]}
        try:
            packet = self._obey(command, header)
        except SveaError as error:
            packet = wire.pack(header | {"error": str(error)})
        except Exception as error:  # also of a user's environment
            traceback.print_exc()
            packet = wire.pack(header | {"error": f"{type(error).__name__}: {error}"})
        self._end.sendall(wire.framed(packet))

    def _obey(self, command: dict[str, Any], header: dict[str, Any]) -> bytes:
        """Start, begin an episode, change the look, or decide; then show it if asked."""
        do, began = command["do"], time.monotonic()
        if do == "start":
            self._player = Player(Seat(**command["seat"]), Setting(**command["setting"]))
            return wire.pack(header | {"about": self._player.about()})
        player = self._player
        if player is None:
            raise UserError("the agent could not be loaded")
        setting = Setting(**command["setting"])
        if do == "begin":
            player.begin(setting)
        elif setting != player.setting:
            player.change(setting)
        if do == "decide":
            player.decide(self._between if command["draw"] else 0)
        told = header | {
            "seed": player.episode.seed,
            "length": player.episode.length,
            "return": player.episode.total,
            "success": player.episode.success,
            "done": player.done,
        }
        if do == "decide" and not command["draw"]:
            return wire.pack(told)
        parts = [player.scene(), *player.seen()]
        told |= player.situation() | vars(player.numbers)
        told["overlay"] = setting.overlay if len(parts) > 2 else "none"
        told["between"] = 0
        player.numbers = type(player.numbers)()
        if do == "decide":
            parts += map(as_jpeg, player.between)
            told["between"] = len(player.between)
            interval = 1 / min(FASTEST, player.rate * setting.speed)
            most = min(player.repeat, int(SMOOTH * interval)) - 1
            self._between = fitting(self._between, time.monotonic() - began, interval, most)
        return wire.pack(told, *parts)


def fitting(count: int, seconds: float, interval: float, most: int) -> int:
    """How many pictures to draw before the next decision, so that it comes in time.

    Args:
        count: How many were drawn before this one.
        seconds: What the decision and all its pictures took.
        interval: Between decisions.
        most: How many are worth it.

    >>> fitting(0, 0.02, 0.1, 3), fitting(3, 0.09, 0.1, 3), fitting(1, 0.07, 0.1, 3)
    (1, 2, 1)
    """
    if seconds > BUSY * interval:
        count -= 1
    elif seconds + seconds / (count + 1) < BUSY * interval:
        count += 1
    return max(0, min(count, most))
