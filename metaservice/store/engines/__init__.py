"""The stores that implement the port, and the files beside them."""
