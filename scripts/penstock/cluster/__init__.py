"""What runs elements: one port, shaped for job arrays; local processes and SLURM behind it."""
