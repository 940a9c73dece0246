"""The stores of a file system: what a vendor's commands say of its targets, servers and quotas, as types that
all vendors share (`facts`), and what follows from it for a run (`health`, `space`, `placement`, `striping`:
pure).
"""
