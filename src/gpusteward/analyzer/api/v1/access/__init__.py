"""Who the client is: sign-in of browsers, and the role of a request."""
