"""What several gateways share: a store that speaks Redis, who of them is there, and what only they
can read.

A gateway without `server.store` loads nothing of this. With one, `Replicas` is made by the
composition root, and the rooms above put into the store what must outlive a process or be the same
everywhere: each has its own file for that, which knows its keys and its Lua, and works on `Store`.
The `redis` package is imported by `connecting` alone.
"""
