"""The broker: the one way out of a sandbox that has one. It runs outside, accepts every connection that a program
inside makes, decides, dials the address that it checked, and relays.

Rules of this room: everything but `driver`, `dial`, `exchange` and `relay` is pure: bytes and facts in, words out. Only
those hold sockets. What can't be understood is refused, and so is what takes too long to be.
"""
