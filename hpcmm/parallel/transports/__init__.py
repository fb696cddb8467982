"""How arrays travel between ranks while they compute: one interface (``base``) and one module a transport.

``choice`` opens the one that these ranks use. It imports the transports and thereby starts MPI; ``base`` does not.
"""
