"""The tools of a release: its rehearsal (`make release-check`), its commit and the pins."""
