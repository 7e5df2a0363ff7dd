"""The tools of a release: its rehearsal (`make release-check`), its files and the pins."""
