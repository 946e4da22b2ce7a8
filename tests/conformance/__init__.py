"""Plays case files against a live service: who may commit after whom."""
