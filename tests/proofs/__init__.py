"""Random problems whose proofs are checked in extended precision."""
