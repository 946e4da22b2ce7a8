"""The lease of a store on object storage, and the notes of standbys."""
