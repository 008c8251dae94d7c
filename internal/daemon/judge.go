package daemon

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"

	"muster/internal/inputfile"
)

// owner returns the user whose installation this is. Root checks and repairs the installation of another user.
func (c *Config) owner() int { return inputfile.OwnerOf(c.DataDir) }

// judge returns [inputfile.ErrUnsafe] for a file that another user could change. A missing file is reported by its
// reader.
func (c *Config) judge(path string) error {
	err := inputfile.Safe(path, c.owner())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// judgeFiles judges all files but policies, which are judged whenever they are read.
func (c *Config) judgeFiles() []error {
	unsafe := make(map[string]error) // by text: a directory of several files is reported once
	for _, path := range append(c.files(), &c.path) {
		if *path == "" {
			continue
		}
		if err := c.judge(*path); err != nil {
			unsafe[err.Error()] = err
		}
	}
	return slices.Collect(maps.Values(unsafe))
}

// judgeCommand judges a program and the files among its arguments, such as the script of an interpreter.
func (c *Config) judgeCommand(command []string) error {
	program, err := exec.LookPath(command[0])
	if err != nil {
		return nil // its first use reports it
	}
	for _, path := range append([]string{program}, command[1:]...) {
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if err := c.judge(path); err != nil {
			return err
		}
	}
	return nil
}
