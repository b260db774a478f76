"""One module per command; each has a click command named `command` and is loaded only when it is used."""
