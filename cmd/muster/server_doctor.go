package main

import (
	"github.com/alecthomas/kingpin/v2"

	"muster/server/servercmd"
)

// addServerDoctor adds "muster server doctor".
func addServerDoctor(server *kingpin.CmdClause, all verbs) { servercmd.AddDoctor(server, all) }
