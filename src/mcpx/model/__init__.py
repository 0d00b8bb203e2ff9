"""Plain values the whole house codes against: no I/O, no protocol, no gateway."""
