"""A rate divided by runs that know each other only by files of one folder: the rule, and the folder."""
