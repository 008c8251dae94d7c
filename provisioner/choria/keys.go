package choria

import (
	_ "embed"
	"strings"
)

// keys.txt has the settings that Choria 0.30.2 itself reads, one a line.
//
//go:embed keys.txt
var keysText string

var serverKeys = strings.Fields(keysText)
