"""Who a client is, by the token it shows, and which profiles that opens.

Nothing here answers a request or knows of sessions: `front.reception` puts the parts together, and
tells the front when somebody has to leave.
"""
