"""The parts that all object stores over HTTP share; each store adds its dialect.

| module | contains |
|---|---|
| `client` | `ObjectClient`, a thread's connection: **a dialect is a subclass**; `Requests` of many threads |
| `reader` | `ObjectReader`: the pinned GET of a range, of a whole object in one call, prefetched |
| `answers` | pure: which error a refusal means; whether a received object is the listed one (version, size) |
| `access_token` | OAuth: a token, its header line in a request, its request to a token server |
| `source` | `ObjectSource`: check, list, list one, reader, checksum of a bucket or container |

A dialect is some 100 lines. It subclasses `ObjectClient` (address, signature, differences in GET, checksums
and refusals) and `ObjectSource` (client, credentials, page of a listing). See `s3`, `azure`, `gcs`, `web`.
"""
