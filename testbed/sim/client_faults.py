"""Faults of client processes: killed, paused and resumed. Like a node's process, a client that is killed runs no other
line of code and its connections break; one that is paused continues where it stopped, late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.sim.process import ProcessState

if TYPE_CHECKING:
    from testbed.sim.workload import Client
    from testbed.sim.world import Simulation


def kill_client(sim: Simulation, client: Client) -> None:
    """Kill the process (SIGKILL)."""
    process = client.process
    if process.alive:
        sim.note(f"{process.name} is killed")
        process.state = ProcessState.DEAD
        client.graveyard.append(sim.loop.tasks_of(process))
        process.held_back.clear()
        sim.network.process_ended(process, power_lost=False)


def pause_client(sim: Simulation, client: Client) -> None:
    """Pause the process (SIGSTOP); its peers see an open connection."""
    if client.process.alive:
        sim.note(f"{client.process.name} is paused")
        client.process.state = ProcessState.PAUSED


def resume_client(sim: Simulation, client: Client) -> None:
    """Let a paused process continue; no effect on another one."""
    if client.process.state is ProcessState.PAUSED:
        sim.note(f"{client.process.name} continues")
        sim.loop.resume(client.process)
