"""Sets, penalties and the projections onto them."""
