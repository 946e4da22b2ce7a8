"""Conditions and expressions on rows in Arrow, with the meaning that Spark SQL gives them."""
