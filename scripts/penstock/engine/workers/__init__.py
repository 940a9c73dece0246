"""The pool: worker processes, their threads, batches and tuning."""
