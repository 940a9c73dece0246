"""What happens to a release after publication: audit, repair, removal, rollback, signature, description."""
