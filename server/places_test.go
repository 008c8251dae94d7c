package server_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"muster/internal/testdisk"
	"muster/server"
)

// Without root the agent cannot make its directories: it says so once, with a remedy.
func TestADirectoryThatCannotBeMadeIsReported(t *testing.T) {
	t.Parallel()
	closed := testdisk.Unwritable(t)
	_, err := server.New(server.Config{ConfFile: closed + "/muster/server.conf", SSLDir: closed + "/muster/ssl"})
	if err == nil || !errors.Is(err, os.ErrPermission) || strings.Count(err.Error(), closed+"/muster") != 1 ||
		!strings.HasSuffix(err.Error(),
			"use --config and --ssl-dir to name directories that its user can write to") {
		t.Errorf("New = %v", err)
	}
}
