"""A real SLURM cluster on this one machine: four slurmd of 8 pretended CPUs each.

By hand: `python -m tests.cluster up [--accounting]`, `status`, `down`. In tests: the fixtures of
`tests.cluster.fixtures`. Everything lies in one folder of its own, with its own ports, munge key
and socket; a SLURM that is already on the machine is neither read nor touched.
"""
