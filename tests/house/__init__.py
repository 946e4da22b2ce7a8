"""Tests about the code itself: its layers, its generated files, its documents, its own tests."""
