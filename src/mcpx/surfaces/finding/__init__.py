"""What a model means: by words, by names that are nearly right, by several names at once."""
