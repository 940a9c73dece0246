"""What all object stores that are read over HTTP share; a store adds a dialect of its own.

| module | holds |
|---|---|
| `client` | `ObjectClient`, a thread's connection: **a dialect is a subclass**; `Requests` of many threads |
| `reader` | `ObjectReader`: the pinned GET of a range, of a whole object in one call, prefetched |
| `answers` | pure: which error a refusal means; what is wrong with an object that came (version, size) |
| `access_token` | OAuth: a token, how a request carries it, how one is requested of a token server |
| `source` | `ObjectSource`: check, list, list one, reader, checksum of a bucket or container |

A new store gives a subclass of `ObjectClient` (where it is, its signature, and what it does otherwise than
most: the pinned GET, checksums, refusals) and one of `ObjectSource` (a client, new credentials, one page of
the listing): some 100 lines. `s3`, `azure`, `gcs` and `web` are such dialects.
"""
