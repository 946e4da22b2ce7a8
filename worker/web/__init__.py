"""What our HTTP servers share: how they listen, show their certificate, and know their callers."""
