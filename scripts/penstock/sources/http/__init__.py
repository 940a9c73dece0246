"""HTTP/1.1 on kept connections: addresses, TLS, requests, answers, bodies."""
