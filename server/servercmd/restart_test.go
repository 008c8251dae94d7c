package servercmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"muster/server/servercmd"
)

// upgraded is what the program is called.
const upgraded = "upgrade"

// upgrade is a program that, run by way of a link, has a new version put in the link's
// place and starts again.
func upgrade() {
	link := os.Args[0]
	if to, err := os.Readlink(link); err != nil || to == "new" {
		fmt.Fprintln(os.Stdout, "the old version")
		os.Exit(1) //nolint:forbidigo // this is its main
	}
	err := os.Symlink("new", link+".next")
	if err == nil {
		err = os.Rename(link+".next", link)
	}
	if err == nil {
		err = servercmd.Again()
	}
	fmt.Fprintln(os.Stdout, err)
	os.Exit(1) //nolint:forbidigo // this is its main
}

// TestARestartTakesUpANewVersion installs versions side by side, and the one in use is
// what a link leads to, as many install programs.
func TestARestartTakesUpANewVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, upgraded)
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), []byte("#!/bin/sh\necho the new version, $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), link, "run").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "the new version, run" {
		t.Errorf("%q, %v, want the new version, run alike", out, err)
	}
}
