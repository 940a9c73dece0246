"""What happens to a release after it was published: audit, repair, removal, rollback, signature,
description."""
