"""The package's tests; `../test` runs them. Budgets are small, so that little data exceeds them."""
