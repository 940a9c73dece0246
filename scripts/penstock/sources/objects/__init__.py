"""What all object stores that are read over HTTP share; a store adds a dialect of its own.

| module | holds |
|---|---|
| `client` | `ObjectClient`: one thread's connection to one store; **a dialect is a subclass of it** |
| `reader` | `ObjectReader`: the pinned GET of a range, of a whole object in one call, prefetched |
| `judgement` | pure: what is wrong with an answer (version, size, range, encoding, length) |
| `refusals` | pure: which error a status and a store's code mean |
| `access_token` | OAuth: a token, how a request carries it, how one is requested of a token server |
| `xml_text`, `json_text` | the text of answers, as values |
| `pages` | a listing's requests: a client for each thread, retries, renewed credentials; pages in order |
| `source` | `ObjectSource`: check, list, list one, reader, checksum of a bucket or container |

A new store gives a subclass of `ObjectClient` (request line and signature, the pinned GET, names of headers,
checksums, refusals) and one of `ObjectSource` (a client, new credentials, one page of the listing): some 100
to 200 lines. `s3`, `azure`, `gcs` and `web` are such dialects.
"""
