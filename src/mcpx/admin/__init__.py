"""The admin API and web UI: FastAPI on uvicorn, in the gateway's own loop, on a port of its own
(ADM-1).

Loaded only with `--admin`. pydantic is imported nowhere else.
"""
