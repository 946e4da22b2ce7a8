"""Data files: storage, footers, Arrow types, delete sets, deletion vectors, and the mark of a warehouse."""
