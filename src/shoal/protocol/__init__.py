"""What device and server agree on before any answer exists: survey, plan, wire form, random bits.

Both sides import it. It needs the standard library and `cryptography`, nothing else.
"""
