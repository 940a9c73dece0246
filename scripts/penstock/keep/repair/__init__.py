"""Files of a release that an audit found damaged, fetched anew and put in their places."""
