//go:build unix

package cli

import (
	"io/fs"
	"path/filepath"

	"github.com/google/renameio/v2"
)

func newPending(path string, mode fs.FileMode) (*renameio.PendingFile, error) {
	return renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithStaticPermissions(mode))
}
