"""Child processes: started, owned as a tree, ended as a tree, and what they say on stderr."""
