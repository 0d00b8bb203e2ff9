"""Other people's descriptions of requests, made into HTTP commands: OpenAPI documents and curl
command lines (SRC-7).

Promised: what is written is a configuration that loads and says what it means: no text of a
document becomes a reference to a variable, a file or an argument, and no secret of a command line
is written down. What cannot be made into a command is told with its reason. Documents are
strangers' words: bounded, and nothing they refer to is read.
"""
