//go:build unix

package files_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/server/files"
)

// A place is a directory of sets, with one name that is shown elsewhere.
type place struct{ dir, conf string }

func newPlace(t *testing.T) place {
	t.Helper()
	top := t.TempDir()
	return place{dir: filepath.Join(top, "etc", "ssl"), conf: filepath.Join(top, "etc", "app.conf")}
}

func (p place) config() files.Config {
	return files.Config{
		Dir: p.dir,
		Links: map[string]string{
			"app.conf": p.conf,
			"key":      filepath.Join(p.dir, "key"),
			"cert":     filepath.Join(p.dir, "cert"),
			"more":     filepath.Join(p.dir, "more"),
		},
	}
}

// shows returns what programs read at the paths of a place.
func (p place) shows(t *testing.T) map[string]string {
	t.Helper()
	shows := map[string]string{}
	for _, name := range []string{"key", "cert", "more/a", "theirs", "app.conf"} {
		path := filepath.Join(p.dir, name)
		if name == "app.conf" {
			path = p.conf
		}
		b, err := os.ReadFile(path)
		if err == nil {
			shows[name] = string(b)
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return shows
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

// replace puts a set in force whose key was staged before.
func replace(d *files.Dir, version string) error {
	if err := d.Make(); err != nil {
		return err
	}
	if _, err := os.Stat(d.StagedPath("key")); err != nil {
		if err := d.Begin(files.File{Name: "key", Data: []byte("key " + version), Mode: 0o600}); err != nil {
			return err
		}
	}
	set := []files.File{
		{Name: "cert", Data: []byte("cert " + version), Mode: 0o644},
		{Name: "app.conf", Data: []byte("conf " + version), Mode: 0o600},
		{Name: "state", Data: []byte("state " + version), Mode: 0o600},
	}
	if version != "2" {
		set = append(set, files.File{Name: "more/a", Data: []byte("more " + version), Mode: 0o600})
	}
	if err := d.Switch(set, "key"); err != nil {
		return err
	}
	return d.Clean()
}

func whole(version string) map[string]string {
	set := map[string]string{"key": "key " + version, "cert": "cert " + version, "app.conf": "conf " + version,
		"theirs": "theirs"}
	if version != "2" {
		set["more/a"] = "more " + version
	}
	return set
}

// The process ends after each step of a replacement, with the files in each layout. Programs see the old set or the
// new one, and the next process completes the replacement.
func TestAReplacementSurvivesAnEndAfterEachStep(t *testing.T) {
	t.Parallel()
	befores := map[string]func(t *testing.T, p place){
		"nothing": func(*testing.T, place) {},
		"files by hand": func(t *testing.T, p place) {
			write(t, filepath.Join(p.dir, "key"), "key 0")
			write(t, filepath.Join(p.dir, "cert"), "cert 0")
			write(t, p.conf, "conf 0")
		},
		"a set": func(t *testing.T, p place) {
			if err := replace(files.New(p.config()), "1"); err != nil {
				t.Fatal(err)
			}
		},
		"a set, and a file by hand in it": func(t *testing.T, p place) {
			if err := replace(files.New(p.config()), "1"); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(p.conf); err != nil {
				t.Fatal(err)
			}
			write(t, p.conf, "conf 0")
		},
	}
	for name, prepare := range befores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for last := 1; ; last++ {
				p := newPlace(t)
				prepare(t, p)
				write(t, filepath.Join(p.dir, "theirs"), "theirs")
				before := p.shows(t)
				cfg := p.config()
				step, steps := "", 0
				cfg.Step = func(name string) {
					if steps++; steps == last {
						step = name
						panic("killed")
					}
				}
				err := killed(func() error { return replace(files.New(cfg), "2") })
				if err != nil {
					t.Fatal(err)
				}
				if step == "" { // it has finished
					if last < 8 {
						t.Errorf("only %d steps", last)
					}
					return
				}
				if shows := p.shows(t); !cmp.Equal(shows, before) && !cmp.Equal(shows, whole("2")) {
					t.Errorf("after step %d, %s: %v, neither the old set nor the new", last, step, shows)
				}
				d := files.New(p.config())
				if err := errors.Join(d.Clean(), replace(d, "2")); err != nil {
					t.Fatalf("after step %d, %s: %v", last, step, err)
				}
				if diff := cmp.Diff(whole("2"), p.shows(t)); diff != "" {
					t.Errorf("after step %d, %s, and once more (-want +got):\n%s", last, step, diff)
				}
				p.checkTidy(t)
			}
		})
	}
}

// killed runs f until it panics.
func killed(f func() error) (err error) {
	defer func() { _ = recover() }()
	return f()
}

func (p place) checkTidy(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		name := e.Name()
		if strings.Contains(name, ".before-") {
			continue
		}
		if strings.HasPrefix(name, "..set-") {
			name = "..set"
		}
		names = append(names, name)
	}
	if diff := cmp.Diff([]string{"..data", "..set", "cert", "key", "theirs"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestModesAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	d := files.New(newPlace(t).config())
	err := errors.Join(d.Make(), d.Begin(files.File{Name: "key", Data: []byte("k"), Mode: 0o640}))
	if err == nil {
		err = d.Switch([]files.File{{Name: "cert", Data: []byte("c"), Mode: 0o666}}, "key")
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"key": 0o640, "cert": 0o666} {
		fi, err := os.Stat(d.Path(name))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, fi.Mode(), want)
		}
	}
}

func TestCheckReportsWhatCannotBeReplaced(t *testing.T) {
	t.Parallel()
	another := newPlace(t)
	if err := replace(files.New(another.config()), "1"); err != nil {
		t.Fatal(err)
	}
	for name, stand := range map[string]func(p place) error{
		"a directory": func(p place) error { return os.Mkdir(p.conf, 0o755) },
		"a link into another set": func(p place) error {
			return os.Symlink(filepath.Join(another.dir, "..data", "app.conf"), p.conf)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			d := files.New(p.config())
			if err := errors.Join(d.Make(), stand(p)); err != nil {
				t.Fatal(err)
			}
			if err := d.Check(); !errors.Is(err, files.ErrOccupied) || !strings.Contains(err.Error(), p.conf) {
				t.Errorf("Check = %v", err)
			}
			if err := replace(d, "1"); !errors.Is(err, files.ErrOccupied) {
				t.Errorf("Switch = %v", err)
			}
			if err := os.RemoveAll(p.conf); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Check(), replace(d, "1")); err != nil {
				t.Errorf("once it is gone: %v", err)
			}
		})
	}
	if got := another.shows(t)["app.conf"]; got != "conf 1" {
		t.Errorf("the other set shows %q", got)
	}
}

// Names lead out of the set, and links of another user of the directory are in the way.
func TestNoFileLeavesItsSet(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../x", "/etc/x", "a/../../x"} {
		p := newPlace(t)
		d := files.New(p.config())
		if err := d.Make(); err != nil {
			t.Fatal(err)
		}
		if err := d.Begin(files.File{Name: name}); err == nil {
			t.Errorf("%q is written", name)
		}
	}
	p := newPlace(t)
	outside := t.TempDir()
	d := files.New(p.config())
	if err := errors.Join(d.Make(), d.Begin()); err != nil {
		t.Fatal(err)
	}
	next := d.StagedPath("")
	generation, err := filepath.EvalSymlinks(next)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(generation), os.Symlink(outside, generation)); err != nil {
		t.Fatal(err)
	}
	if err := d.Switch([]files.File{{Name: "cert", Mode: 0o644}}); err == nil {
		t.Error("a link out of the directory is followed")
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("%v written outside", entries)
	}
}

// While fsync fails, both sets are there.
func TestASwitchIsSyncedBeforeTheOldSetGoes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if err := replace(files.New(p.config()), "1"); err != nil {
		t.Fatal(err)
	}
	cfg := p.config()
	var synced []string
	fail, switched := true, false
	cfg.Step = func(name string) { switched = switched || name == "switched" }
	cfg.Sync = func(dir string) error {
		synced = append(synced, dir)
		if switched && fail {
			return fmt.Errorf("sync %s: %w", dir, syscall.EIO)
		}
		return nil
	}
	d := files.New(cfg)
	if err := replace(d, "2"); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Clean = %v", err)
	}
	sets, _ := filepath.Glob(filepath.Join(p.dir, "..set-*"))
	if len(sets) != 2 || p.shows(t)["key"] != "key 2" {
		t.Errorf("%d sets, and %v is shown", len(sets), p.shows(t))
	}
	fail = false
	if err := d.Clean(); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(p.conf); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if !slices.Contains(synced, dir) {
			t.Errorf("the names in %s are not on disk", dir)
		}
	}
}
