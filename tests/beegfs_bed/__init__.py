"""A BeeGFS that runs: servers, client and commands of version 7 or 8 in one guest of User Mode Linux."""
