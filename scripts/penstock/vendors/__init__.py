"""What the commands of file systems' vendors say of a target, and what follows from it for a run.

`command` runs a vendor's command, `facts` has the types of what it said, a package for each vendor
(`beegfs`) makes them from the command's text, and `health`, `space`, `placement` judge them without any
input or output. `registry` is what other packages call.
"""
