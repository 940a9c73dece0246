"""What vendors' commands report of targets, servers and quotas (`facts`), and what follows for a run
(`health`, `space`, `placement`, `striping`)."""
