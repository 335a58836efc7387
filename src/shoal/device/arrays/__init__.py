"""Many reports at once: the same verbs on arrays, for files, tables and simulations.

Here NumPy and pyarrow are used. What a device needs for one report is beside this folder and
imports nothing of it until somebody asks for many.
"""
