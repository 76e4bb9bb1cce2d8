"""How a kernel, or a person at a terminal, asks the store. Holds no rules about sessions."""
