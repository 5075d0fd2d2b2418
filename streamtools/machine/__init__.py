"""The state machine that turns the source events of one run into UI events, without I/O."""

from streamtools.machine.state_machine import StreamMachine

__all__ = ["StreamMachine"]
