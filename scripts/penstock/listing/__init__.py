"""From the sources' objects to the frozen listing: collected, filtered, mapped, checked."""
