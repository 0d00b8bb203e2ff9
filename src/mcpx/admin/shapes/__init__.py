"""What goes in and out of the API, as pydantic models."""
