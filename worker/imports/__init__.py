"""Tables of other formats, taken in where their files lie. Nothing is copied; a later run takes in what came since."""
