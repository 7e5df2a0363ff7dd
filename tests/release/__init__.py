"""What a release needs: its rehearsal (`make release-check`), its commit and the pins."""
