"""The wire: `.proto` files and the Python generated beside them, which `make protos` rewrites and nobody edits."""
