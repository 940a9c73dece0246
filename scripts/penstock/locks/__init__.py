"""The dataset's lock on the target: who holds it, whether its holder lives, how it is taken over."""
