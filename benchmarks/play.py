"""What the playground costs: processor time per decision, of two agents with their pictures.

    python benchmarks/play.py zoo:walker_walk-svea zoo:walker_walk-svea-motion

Plays without a page, as fast as it goes, with every decision drawn: policy, simulation, the agent's
picture, the scene at 256 pixels, its JPEG, and the way through the server's process. On a machine
that others use, wall time says nothing; processor time does: with two cores and two agents, each
has a core, less what server and browser take.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time

from svea.play.session import AgentProcess
from svea.play.setting import DEFAULT, AgentSlot, read_setting

WARMUP, DECISIONS, ROUNDS = 20, 50, 5
LOOKS = {
    "train": {},
    "video_hard": {"mode": "video_hard"},
    "distracting_cs:0.3": {"mode": "distracting_cs", "intensity": 0.3},
    "colours, roll, noise": {"sky": "#aa3300", "floor": "#228855", "roll": 20, "noise": 0.1},
    "train with saliency": {"overlay": "saliency"},
}


def seconds_of(pid: int) -> float:
    """Processor time of a process so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def main(runs: list[str]) -> None:
    """Measure every look."""
    agents = [AgentProcess(k, AgentSlot(run), len(runs)) for k, run in enumerate(runs)]
    await asyncio.gather(*(agent.start(DEFAULT) for agent in agents))
    print("| look | agent, ms/decision | server, ms/decision | decisions/s of a core |")
    print("|---|---|---|---|")
    for look, given in LOOKS.items():
        setting = read_setting(given, [])
        await asyncio.gather(*(agent.ask("begin", setting) for agent in agents))
        agent_ms, server_ms = [], []
        for number in range(ROUNDS + 1):
            count = DECISIONS if number else WARMUP
            before, own = [seconds_of(agent.pid or 0) for agent in agents], time.process_time()
            for _ in range(count):
                await asyncio.gather(*(agent.ask("decide", setting) for agent in agents))
            if number:
                after = [seconds_of(agent.pid or 0) for agent in agents]
                spent = sum(after) - sum(before)
                agent_ms.append(1e3 * spent / count / len(agents))
                server_ms.append(1e3 * (time.process_time() - own) / count)
            if number % 3 == 2:  # episodes of walker_walk have 250 decisions
                await asyncio.gather(*(agent.ask("begin", setting) for agent in agents))
        own_ms, of_server = statistics.median(agent_ms), statistics.median(server_ms)
        print(f"| {look} | {own_ms:.1f} | {of_server:.1f} | {1e3 / own_ms:.0f} |", flush=True)
    await asyncio.gather(*(agent.close() for agent in agents))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or ["zoo:walker_walk-svea", "zoo:walker_walk-svea-motion"]))
