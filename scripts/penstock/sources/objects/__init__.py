"""What all object stores over HTTP share; a store adds its dialect.

| module | holds |
|---|---|
| `client` | `ObjectClient`, a thread's connection: **a dialect is a subclass**; `Requests` of many threads |
| `reader` | `ObjectReader`: the pinned GET of a range, of a whole object in one call, prefetched |
| `answers` | pure: which error a refusal means; what is wrong with an object that came (version, size) |
| `access_token` | OAuth: a token, how a request carries it, how one is requested of a token server |
| `source` | `ObjectSource`: check, list, list one, reader, checksum of a bucket or container |

A dialect is some 100 lines. It subclasses `ObjectClient` (address, signature, differences in GET, checksums
and refusals) and `ObjectSource` (client, credentials, one page of the listing). See `s3`, `azure`, `gcs`,
`web`.
"""
