"""Words of strangers, made short and safe to stand among our own."""
