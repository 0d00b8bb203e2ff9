"""What an HTTP command is made of: templates, bodies, sending, and reading answers."""
