"""Plants bugs one by one in a copy of the tree and sees which suite catches them."""
