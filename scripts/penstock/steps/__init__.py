"""The steps of a run. They compose the ports and keep no tricks of their own."""
