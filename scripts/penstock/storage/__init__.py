"""Where datasets land: the durable POSIX target. Only this package changes the target's tree."""
