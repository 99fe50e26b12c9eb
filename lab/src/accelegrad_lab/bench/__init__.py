"""The benchmark against other packages' solvers."""
