package cli

// Interrupted is what [Run] makes of a verb's error.
var Interrupted = interrupted

// WriteNamed is what [WriteNewBy] does where a file must have a name from the beginning.
var WriteNamed = fillNamed
