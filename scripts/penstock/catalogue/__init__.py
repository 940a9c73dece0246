"""What lies below a target's root, for people: releases, one of them in detail, two compared, the history.
It reads, and changes nothing; every account may call it, and sees what it may read."""
