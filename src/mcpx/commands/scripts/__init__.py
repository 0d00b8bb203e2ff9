"""What a script command is made of: arguments, folders, turns, running, output."""
