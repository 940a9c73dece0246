"""What people see: progress, summary, report. Sinks of events, nothing else."""
