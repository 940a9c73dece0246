"""File systems: trees walked, opened safely and read past the caches, small files written durably; what each
kind of file system can do, and what its vendor's commands say. Changes no dataset."""
