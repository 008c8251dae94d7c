package servercmd

// Again starts the program anew in the place of this process.
func Again() error { return again() }
