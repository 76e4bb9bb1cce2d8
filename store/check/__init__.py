"""Every kind of damage, found by one function each; many can be repaired.

A check yields findings and changes nothing. A finding that can be repaired carries a function
from `repairs`; only derived data is repaired, and bad files are moved to the trash.

To add a check: write `check_<what>(context: CheckContext) -> Iterator[Finding]`, add its
kind to `finding.Kind` and the function to the list CHECKS in `run`, and break a home in
tests/store/check/test_run.py to show that it is found.
"""
