"""The state machine: source events in, UI events out, without I/O."""

from streamtools.machine.state_machine import StreamMachine

__all__ = ["StreamMachine"]
