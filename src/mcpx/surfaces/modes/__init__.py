"""The modes, a file each: the name of the file is the name of the mode. Nothing else stands in this
folder."""
