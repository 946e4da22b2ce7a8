"""The deciding thread, its state, and the views for readers."""
