"""What happened, for whoever runs it: listeners on the bus. They observe; they never change a
call."""
