"""Transports move arrays between ranks during a computation: one interface (``base``) and one module per transport.

``choice`` opens the transport of these ranks. It imports the transports and thereby starts MPI; ``base`` does not.
"""
