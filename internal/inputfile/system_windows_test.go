package inputfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/windows"

	"muster/internal/inputfile"
)

// protect gives a file the access list of a descriptor.
func protect(t *testing.T, path, descriptor string) {
	t.Helper()
	sd, err := windows.SecurityDescriptorFromString(descriptor)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := sd.DACL()
	if err != nil {
		t.Fatal(err)
	}
	err = windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, list, nil)
	if err != nil {
		t.Fatal(err)
	}
}

func TestAccessListsAreJudged(t *testing.T) {
	t.Parallel()
	const admins = "(A;;FA;;;SY)(A;;FA;;;BA)(A;;FA;;;OW)"
	for descriptor, want := range map[string]struct{ readable, unsafe bool }{
		"D:P" + admins:                    {},
		"D:P" + admins + "(A;;FR;;;WD)":   {readable: true},
		"D:P" + admins + "(A;;FRFW;;;WD)": {readable: true, unsafe: true},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		protect(t, path, descriptor)
		if err := inputfile.ReadableByOthers(path); (err != nil) != want.readable {
			t.Errorf("%s: ReadableByOthers = %v", descriptor, err)
		}
		if err := inputfile.Safe(path); errors.Is(err, inputfile.ErrUnsafe) != want.unsafe {
			t.Errorf("%s: Safe = %v", descriptor, err)
		}
	}
}
