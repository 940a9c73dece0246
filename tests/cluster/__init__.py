"""A real SLURM cluster on this one machine: four slurmd of 8 pretended CPUs each, or one slurmd that has the
machine's own CPUs and confines its jobs to what they were given.

By hand: `python -m tests.cluster up [--accounting] [--confined]`, `status`, `down`. In tests: the fixtures of
`tests.cluster.fixtures`. Everything lies in one folder of its own, with its own ports, munge key
and socket; a SLURM that is already on the machine is neither read nor touched.
"""
