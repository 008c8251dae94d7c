package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/cli"
	"muster/internal/span"
)

// TestDurationOf refuses what is outside of the limits, and says them and the flag.
func TestDurationOf(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1m": "", "30d": "", "1M": "", "59s": `--ttl is "59s", want 1m to 30d`, "0s": `--ttl is "0s", want 1m to 30d`,
		"30d1s": `--ttl is "30d1s", want 1m to 30d`, "100000d": `--ttl is "100000d", want 1m to 30d`,
		"300y": `--ttl: "300y" is longer than 292 years; want 1m to 30d`, "99999999999999999999s": `--ttl: "99999999999999999999s" is longer than 292 years; want 1m to 30d`,
		"99999999999999999999x": `--ttl: "99999999999999999999x" is not a span such as 90s, 30m, 12h, 30d or 2w; want 1m to 30d`, "-1d": `--ttl: "-1d" is not a span such as 90s, 30m, 12h, 30d or 2w; want 1m to 30d`,
	} {
		got, err := cli.DurationOf("ttl", in, time.Minute, 30*span.Day)
		if err == nil && want == "" {
			if meant, _ := span.Parse(in); got != meant {
				t.Errorf("DurationOf(%q) = %v, want %v", in, got, meant)
			}
			continue
		}
		if err == nil || err.Error() != want || got != 0 {
			t.Errorf("DurationOf(%q) = %v, %v, want %q", in, got, err, want)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	usage := &cli.UsageError{Mistakes: errors.New("one\ntwo\x1b[31m"), Help: "muster jwt"}
	for name, tt := range map[string]struct {
		err  error
		code int
		want string
	}{
		"none":             {nil, cli.ExitDone, ""},
		"failure":          {errors.New("no disk"), cli.ExitFailed, "muster: no disk\n"},
		"several failures": {errors.Join(errors.New("a"), errors.New("b")), cli.ExitFailed, "muster: a\nmuster: b\n"},
		"usage":            {usage, cli.ExitUsage, "muster: one\nmuster: two\\u001b[31m\nmuster: try `muster jwt --help`\n"},
		"usage, wrapped":   {fmt.Errorf("x: %w", &cli.UsageError{Mistakes: errors.New("y")}), cli.ExitUsage, "muster: x: y\n"},
	} {
		var b bytes.Buffer
		if code := cli.Report(&b, "muster", tt.err); code != tt.code || b.String() != tt.want {
			t.Errorf("%s: Report = %d and %q, want %d and %q", name, code, b.String(), tt.code, tt.want)
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain": "plain", "a\nb": "a\nb", "größe 😀": "größe 😀", "\x1b]0;x\a": `\u001b]0;x\u0007`,
		"a\u202eb": `a\u202eb`, "a\rb": `a\u000db`, "\u009b1m": `\u009b1m`, "\xff": "\ufffd", "": "", "a\tb\a": `a    b\u0007`,
	} {
		if got := cli.Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	var l cli.Labels
	l.Add("Token", "set")
	l.Addf("Provisioning Registration Data", "%d\nlines", 2)
	want := "                         Token: set\nProvisioning Registration Data: 2\n                                lines\n"
	if l.String() != want {
		t.Errorf("Labels =\n%s, want\n%s", &l, want)
	}

	var table cli.Table
	table.Add("node", "why")
	table.Add("größe.example.net", "a\nb", "")
	if want := "node               why\ngröße.example.net  a b\n"; table.String() != want {
		t.Errorf("Table =\n%s, want\n%s", &table, want)
	}
}

func TestWriteNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key.pem")
	if err := cli.WriteNew(path, []byte("one"), 0o600, false); err != nil {
		t.Fatal(err)
	}
	if err := cli.WriteNew(path, []byte("two"), 0o600, false); !errors.Is(err, cli.ErrExists) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file: error %v, want %v", err, cli.ErrExists)
	}
	expect(t, path, "one", 0o600)
	if err := cli.WriteNew(path, []byte("three"), 0o644, true); err != nil {
		t.Fatal(err)
	}
	expect(t, path, "three", 0o644)

	dangling := filepath.Join(dir, "dangling")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), dangling); err != nil {
		t.Fatal(err)
	}
	if err := cli.WriteNew(dangling, []byte("x"), 0o600, false); !errors.Is(err, cli.ErrExists) {
		t.Errorf("over a dangling link: error %v, want %v", err, cli.ErrExists)
	}
	if err := cli.WriteNew(filepath.Join(dir, "none", "x"), []byte("x"), 0o600, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("into no directory: error %v, want %v", err, fs.ErrNotExist)
	}
	if err := cli.WriteNew(dir, []byte("x"), 0o600, true); err == nil || errors.Is(err, cli.ErrExists) {
		t.Errorf("over a directory: error %v, want one without the advice to use force", err)
	}
	leftOvers(t, dir, "dangling", "key.pem")
}

// TestWriteNewNames looks at the words: the file that was asked for, never the
// temporary one, and what to do.
func TestWriteNewNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, closed := filepath.Join(dir, "file"), filepath.Join(dir, "closed")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		closed = "/sys" // closed to root as well
	}
	for name, tt := range map[string]struct{ path, want string }{
		"no directory":      {dir + "/none/key", "directory " + dir + "/none: no such file or directory"},
		"closed directory":  {closed + "/key", "directory " + closed + ": permission denied"},
		"file as directory": {file + "/key", "directory " + file + ": not a directory"},
		"directory as file": {dir, "is a directory or device, which is never replaced; want the name of a file"},
		"over a file":       {file, "file already exists; nothing was written, use --force to replace it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := cli.WriteNew(tt.path, []byte("x"), 0o600, false)
			want := tt.path + ": " + tt.want
			if errors.Is(err, syscall.EROFS) { // as /sys is in many containers
				want = tt.path + ": directory " + closed + ": read-only file system"
			}
			if err == nil || err.Error() != want {
				t.Errorf("error %v\nwant  %s", err, want)
			}
		})
	}
}

func TestCheckNew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		path  string
		force bool
		want  error // nil also means none
	}{
		"new":              {filepath.Join(dir, "new"), false, nil},
		"replace":          {file, true, nil},
		"there":            {file, false, cli.ErrExists},
		"no directory":     {filepath.Join(dir, "none", "x"), true, fs.ErrNotExist},
		"not a directory":  {filepath.Join(file, "x"), true, syscall.ENOTDIR},
		"in the directory": {"relative", false, nil},
	} {
		if err := cli.CheckNew(tt.path, tt.force); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", name, err, tt.want)
		}
	}
	leftOvers(t, dir, "file")
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, link, "/dev/null"} {
		if err := cli.CheckNew(path, true); err == nil || !strings.Contains(err.Error(), "never replaced") {
			t.Errorf("%s: error %v, want that it is never replaced", path, err)
		}
	}
}

// TestWriteNewOnce lets many write the same new file: one wins, and its content is whole.
func TestWriteNewOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key.pem")
	var wg sync.WaitGroup
	won := make([]bool, 16)
	for i := range won {
		wg.Go(func() {
			err := cli.WriteNew(path, bytes.Repeat([]byte{byte('a' + i)}, 1000), 0o600, false)
			if won[i] = err == nil; err != nil && !errors.Is(err, cli.ErrExists) {
				t.Errorf("error %v, want %v", err, cli.ErrExists)
			}
		})
	}
	wg.Wait()
	winners := 0
	for i, w := range won {
		if w {
			winners++
			expect(t, path, strings.Repeat(string(rune('a'+i)), 1000), 0o600)
		}
	}
	if winners != 1 {
		t.Errorf("%d writers won, want 1", winners)
	}
	leftOvers(t, dir, "key.pem")
}

func expect(tb testing.TB, path, content string, mode fs.FileMode) {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		tb.Fatal(err)
	}
	if string(b) != content || info.Mode().Perm() != mode {
		tb.Errorf("%s is %q with mode %v, want %q with %v", path, b, info.Mode(), content, mode)
	}
}

// leftOvers checks that dir holds the names and no temporary files.
func leftOvers(tb testing.TB, dir string, want ...string) {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		tb.Errorf("%s holds %q, want %q", dir, names, want)
	}
}
