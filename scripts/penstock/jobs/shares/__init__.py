"""A rate that runs divide which know each other by files of one folder alone: the rule, and the folder."""
