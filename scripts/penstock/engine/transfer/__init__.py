"""One object's way from its source into staging: read, hash, check, write; whole or in parts."""
