"""What a folder's file system really does: tried in a hidden folder there, which is removed again.

`trials.probe` makes the report (`core.run_documents`); `judgement` draws the conclusions.
"""
