package certificates

import (
	"io/fs"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

// ownerOf returns what [os.Geteuid] and [os.Getegid] do.
func ownerOf(fs.FileInfo) (uid, gid int) { return -1, -1 }
