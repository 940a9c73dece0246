"""The steps of a run. Each is one module; it composes the ports and the packages below."""
