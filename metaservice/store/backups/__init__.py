"""Backups: folders, repositories, and their manifests."""
