"""S3, and other stores that speak its protocol."""
