package main

import (
	"github.com/alecthomas/kingpin/v2"

	"muster/server/servercmd"
)

// addBuildInfo adds "muster buildinfo".
func addBuildInfo(app *kingpin.Application, all verbs) { servercmd.AddBuildInfo(app, all) }
