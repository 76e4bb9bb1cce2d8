"""Every kind of damage, found by one function each; many can be repaired.

A check yields findings and changes nothing. A finding that can be repaired carries the
function that repairs it. Add a check here and list it in `store.check`.
"""
