"""One function per API, named as the API is."""
