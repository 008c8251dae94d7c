package cli

// Interrupted is what [Run] makes of a verb's error.
var Interrupted = interrupted
