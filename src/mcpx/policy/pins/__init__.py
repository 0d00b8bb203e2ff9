"""What servers say of themselves, held to what somebody approved (SEC-5).

`fingerprint` tells one definition from another, `pinned` judges what one server says now, `kept` is
what is on disk of it, `store` has all of them; `marks`, `grown` and `diff` make it readable for
whoever approves. Nothing here is imported while every server is trusted as it comes.
"""
