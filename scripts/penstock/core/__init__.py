"""Pure parts: models, decisions, formats. The standard library only."""
