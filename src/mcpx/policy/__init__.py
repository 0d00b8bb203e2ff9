"""Who may see and do what: profiles, rules, pinned definitions, limits.

The middle asks in two places and nowhere else: what a caller sees (`Sight`, by which every catalog
is narrowed), and whether a call may pass (`Warden.guard`, before it is forwarded). Nothing here
knows of HTTP, surfaces or links.
"""
