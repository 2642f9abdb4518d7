"""Set-up, demo and test runner of the pack. Only the standard library is needed until `.venv` exists."""
